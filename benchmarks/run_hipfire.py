"""One measurement of a hipfire device, in a process of its own: prefill and decode speed as JSON on stdout.

As llama-bench does it: a warm-up, a prompt in one step with the logits of its last row, then one row a step from an
empty state. Sampling and text are not part of it.
"""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Device, Executable, Limits, Step
from hipfire.devices.cpu import CpuDevice
from hipfire.devices.registry import open_device
from hipfire.formats.open import open_checkpoint
from hipfire.models.registry import build_program


def run_rows(executable: Executable, token_ids: NDArray[np.int32], position: int) -> None:
    """One step of rows that follow each other in slot 0, with the logits of the last one."""
    n = len(token_ids)
    executable.run(
        Step(
            token_ids=token_ids,
            positions=np.arange(position, position + n, dtype=np.int32),
            slots=np.zeros(n, np.int32),
            output_rows=np.array([n - 1], np.int32),
        ),
        CancelFlag(),
    )


def measure(executable: Executable, n_vocab: int, n_prefill: int, n_decode: int) -> dict[str, float]:
    """Tokens a second of one prefill and of one decode."""
    token_ids = np.random.default_rng(0).integers(0, n_vocab, max(n_prefill, n_decode)).astype(np.int32)
    run_rows(executable, token_ids[:n_prefill], 0)
    start = time.perf_counter()
    run_rows(executable, token_ids[:n_prefill], 0)
    prefill_s = time.perf_counter() - start
    run_rows(executable, token_ids[:1], 0)
    start = time.perf_counter()
    for position in range(n_decode):
        run_rows(executable, token_ids[position : position + 1], position)
    decode_s = time.perf_counter() - start
    return {"prefill": n_prefill / prefill_s, "decode": n_decode / decode_s}


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefill", type=int, required=True)
    parser.add_argument("--decode", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--variant", help="of the CPU kernels; the machine's best if left out")
    options = parser.parse_args(argv)
    if options.variant:
        device: Device = CpuDevice.open(options.threads, variant=options.variant)
    else:
        device = open_device(options.device, n_threads=options.threads)
    with open_checkpoint(options.model) as checkpoint:
        model = build_program(checkpoint)
        executable = device.load(
            model.program,
            {name: tensor.data for name, tensor in checkpoint.tensors.items()},
            Limits(max_tokens=options.prefill, max_outputs=1, n_slots=1, max_seq=max(options.prefill, options.decode)),
            on_progress=lambda _: None,
        )
        speeds = measure(executable, model.n_vocab, options.prefill, options.decode)
        executable.close()
    print(json.dumps({"engine": "hipfire", "features": device.description, **speeds}))


if __name__ == "__main__":
    main()
