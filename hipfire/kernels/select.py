"""Which compiled library fits this machine.

Knows the names of the variants, best first; the libraries themselves say what the CPU can run.
"""

import platform
from pathlib import Path

from hipfire.errors import DeviceError
from hipfire.kernels.library import Library

FOLDER = Path(__file__).parent / "lib"

VARIANTS = {
    "x86_64": ("x86_64_avx512", "x86_64_avxvnni", "x86_64_avx2", "x86_64"),
    "aarch64": ("aarch64",),
}
"""By architecture; the last one is the baseline, which every machine of that architecture runs."""

ARCHITECTURE_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}


def machine_variants() -> tuple[str, ...]:
    """The variants that this machine can run, best first.

    Raises DeviceError when there is none, or its library is missing.
    """
    machine = platform.machine().lower()
    names = VARIANTS.get(ARCHITECTURE_NAMES.get(machine, machine), ())
    if not names:
        raise DeviceError(f"there are no compiled CPU kernels for {machine}", hint="use --device reference")
    baseline = load_variant(names[-1])
    return tuple(name for name in names if baseline.machine_has(name.encode()))


def load_variant(name: str) -> Library:
    """One variant's library. Raises DeviceError when it is missing or cannot be loaded."""
    path = FOLDER / f"hipfire_cpu-{name}.so"
    if not path.exists():
        raise DeviceError(
            f"the compiled CPU kernels are missing: {path.name}", hint="run python -m hipfire.kernels.build"
        )
    return Library(path)
