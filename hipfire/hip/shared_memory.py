"""How much memory an integrated GPU can still have, as the kernel driver tells it. Linux; elsewhere it is not known.

Such a GPU has a part of the host's memory set aside by the firmware (VRAM), and may use more of it (GTT). Since Linux
6.10 amdgpu takes everything from GTT where that is the larger, and nothing from it otherwise (`apu_prefer_gtt`). HIP's
`hipMemGetInfo` was seen to count what is set aside, or both, or more than there is
(https://github.com/ROCm/legacy-rocm-build/issues/6004, https://github.com/ROCm/rocm-systems/pull/5596).
"""

import platform
from pathlib import Path

PCI_SYSFS = Path("/sys/bus/pci/devices")

_PREFERS_GTT_SINCE = [6, 10]


def shared_free_nbytes(
    pci: str, host_nbytes: int | None, *, devices: Path = PCI_SYSFS, kernel: str = platform.release()
) -> int | None:
    """Bytes that the integrated GPU at an address such as 0000:c5:00.0 can take of the host's memory, of which
    `host_nbytes` are available (None: not known). None where it takes none of it, or the driver does not tell.
    """
    set_aside, total, used = (
        _number(devices / pci / f"mem_info_{name}") for name in ("vram_total", "gtt_total", "gtt_used")
    )
    if set_aside is None or total is None or used is None or total <= set_aside:
        return None
    version = [int(part) for part in kernel.partition("-")[0].split(".")[:2] if part.isdigit()]
    if version < _PREFERS_GTT_SINCE:
        return None
    free = max(total - used, 0)
    return free if host_nbytes is None else min(free, host_nbytes)


def _number(path: Path) -> int | None:
    try:
        return int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None
