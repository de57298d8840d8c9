"""The compiled GPU kernels, by architecture. Knows no GPU."""

from pathlib import Path

from hipfire.errors import DeviceError
from hipfire.kernels.hip_table import SOURCES, TARGETS

FOLDER = Path(__file__).parent / "hsaco"


def is_covered(arch: str) -> bool:
    """Whether there are kernels for an architecture."""
    return arch in TARGETS


def code_objects(arch: str) -> dict[str, bytes]:
    """The code objects of an architecture, by source. Raises DeviceError where there are none."""
    if not is_covered(arch):
        raise DeviceError(f"there are no kernels for {arch}", hint=f"there are for {', '.join(TARGETS)}")
    folder = FOLDER / arch
    missing = [source for source in SOURCES if not (folder / f"{source}.hsaco").is_file()]
    if missing:
        raise DeviceError(f"kernels for {arch} are missing: {', '.join(missing)}", hint="install hipfire anew")
    return {source: (folder / f"{source}.hsaco").read_bytes() for source in SOURCES}
