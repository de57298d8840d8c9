"""Builds the emulated `libamdhip64` from `machine/*.c`, with the compiler in the ziglang wheel.

`python -m emulator.build FOLDER`, with tests/ on the Python path, prints the library's path. The library finds the
translator by a path that is compiled in, so it works in any process on the machine that built it.
"""

import hashlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE / "machine"
LIBRARY = "libamdhip64_emulated.so"
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-g0",
    "-fPIC",
    # The emulator's vectors are 32 lanes wide; fma must be one instruction.
    "-mcpu=x86_64_v3",
    # A multiply-add is fused where the GPU's instruction is, and nowhere else.
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fno-strict-aliasing",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-pass-failed",
)


class BuildError(Exception):
    """The library could not be built; the message is the compiler's."""


def translator_version() -> str:
    """A hash of everything that shapes a translated code object: part of the names in the cache."""
    digest = hashlib.sha256()
    for path in sorted(HERE.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def build_library(folder: Path) -> Path:
    """Build the library in a folder, unless it is there already from the same sources. Returns its path."""
    defines = (
        f'-DTRANSLATOR="{translator_version()}"',
        f'-DPACKAGE_PARENT="{HERE.parent}"',
        f'-DPYTHON="{sys.executable}"',
    )
    sources = sorted(SOURCES.glob("*.c"))
    digest = hashlib.sha256(repr((FLAGS, defines)).encode())
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / digest.hexdigest()[:16] / LIBRARY
    if library.exists():
        return library
    library.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as room, ThreadPoolExecutor(max_workers=2) as pool:
        objects = list(pool.map(lambda source: _compile(source, Path(room), defines), sources))
        partial = Path(room) / LIBRARY
        _zig("cc", "-shared", "-s", *map(str, objects), "-lm", "-o", str(partial))
        partial.replace(library)
    return library


def _compile(source: Path, room: Path, defines: tuple[str, ...]) -> Path:
    out = room / f"{source.stem}.o"
    _zig("cc", *FLAGS, *defines, "-c", str(source), "-o", str(out))
    return out


def _zig(*arguments: str) -> None:
    done = subprocess.run([sys.executable, "-m", "ziglang", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BuildError(f"{' '.join(arguments)}\n{done.stderr}")


if __name__ == "__main__":
    sys.stdout.write(f"{build_library(Path(sys.argv[1]).resolve())}\n")
