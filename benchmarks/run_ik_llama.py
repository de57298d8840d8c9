"""One measurement of ik_llama.cpp, as run_hipfire.py prints it. Runs in a Python that has ik-llama-cpp-python.

The package has no llama-bench, so this does what llama-bench does through the package's C bindings.
"""

import argparse
import ctypes
import json
import random
import time
from collections.abc import Sequence
from pathlib import Path

import ik_llama_cpp
from ik_llama_cpp import _ctypes_api as api
from ik_llama_cpp._internals import IkContext, IkModel, make_batch_range


def system_info() -> str:
    """The instruction sets that this build was compiled to use."""
    library = ctypes.CDLL(str(Path(ik_llama_cpp.__file__).parent / "lib" / "libllama.so"))
    library.llama_print_system_info.restype = ctypes.c_char_p
    info: bytes = library.llama_print_system_info()
    return info.decode()


def run_rows(context: IkContext, token_ids: Sequence[int], position: int) -> None:
    """One batch of rows that follow each other, with the logits of the last one."""
    batch = make_batch_range(list(token_ids), pos_start=position)
    if context.decode(batch) != 0:
        raise RuntimeError("llama_decode failed")
    context.get_logits(len(token_ids) - 1)  # waits for the computation
    api.llama_batch_free(batch)


def measure(context: IkContext, n_vocab: int, n_prefill: int, n_decode: int) -> dict[str, float]:
    """Tokens a second of one prefill and of one decode."""
    choose = random.Random(0)
    token_ids = [choose.randrange(n_vocab) for _ in range(max(n_prefill, n_decode))]
    run_rows(context, token_ids[:n_prefill], 0)
    context.kv_cache_clear()
    start = time.perf_counter()
    run_rows(context, token_ids[:n_prefill], 0)
    prefill_s = time.perf_counter() - start
    context.kv_cache_clear()
    run_rows(context, token_ids[:1], 0)
    context.kv_cache_clear()
    start = time.perf_counter()
    for position in range(n_decode):
        run_rows(context, token_ids[position : position + 1], position)
    decode_s = time.perf_counter() - start
    return {"prefill": n_prefill / prefill_s, "decode": n_decode / decode_s}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefill", type=int, required=True)
    parser.add_argument("--decode", type=int, required=True)
    options = parser.parse_args(argv)
    model = IkModel(options.model)
    context = IkContext(model, n_ctx=max(options.prefill, options.decode), n_threads=options.threads)
    speeds = measure(context, model.n_vocab, options.prefill, options.decode)
    engine = f"ik_llama.cpp {ik_llama_cpp.__version__}"
    print(json.dumps({"engine": engine, "features": system_info(), **speeds}))


if __name__ == "__main__":
    main()
