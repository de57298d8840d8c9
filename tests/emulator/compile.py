"""Compiles HIP source to a code object with the compiler in the ziglang wheel: no ROCm, no headers."""

import subprocess
import sys
import tempfile
from pathlib import Path

FLAGS = (
    "-triple",
    "amdgcn-amd-amdhsa",
    "-x",
    "hip",
    "-fcuda-is-device",
    "-std=c++17",
    "-O3",
    "-mcode-object-version=5",
    "-emit-obj",
)


class CompileError(Exception):
    """The compiler or the linker refused; the message is theirs."""


def compile_hip(source: Path, arch: str, options: tuple[str, ...] = ()) -> bytes:
    """The code object of a HIP source for an architecture. Raises CompileError."""
    with tempfile.TemporaryDirectory() as folder:
        unlinked, linked = Path(folder) / "unlinked.o", Path(folder) / "code.hsaco"
        _zig("clang", "-cc1", *FLAGS, "-target-cpu", arch, *options, "-o", str(unlinked), str(source))
        _zig("ld.lld", "-shared", "-o", str(linked), str(unlinked))
        return linked.read_bytes()


def _zig(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CompileError(done.stderr)
