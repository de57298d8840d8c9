"""Which processes have memory of a GPU, as the kernel driver tells it. Linux; elsewhere it is not known.

Source: amdkfd's sysfs (Linux, drivers/gpu/drm/amd/amdkfd): `proc/PID/vram_GPU` has the bytes of VRAM that a process has
of the GPU of this number, `topology/nodes/*` the number and the PCI address of each GPU. Processes have the numbers
that they have outside containers, so in one this process is not known for itself.
"""

import os
import re
from pathlib import Path

KFD_SYSFS = Path("/sys/class/kfd/kfd")

_NOTEWORTHY_NBYTES = 64 << 20
"""Whoever opens a GPU has a little of its memory."""


def other_users(pci: str, kfd: Path = KFD_SYSFS) -> dict[int, int]:
    """Bytes by process, of those that have much, without this one. Empty where it cannot be known."""
    number = _number_of(pci, kfd)
    users = {}
    for path in kfd.glob(f"proc/*/vram_{number}") if number else ():
        pid, nbytes = int(path.parent.name), int(_read(path) or 0)
        if pid != os.getpid() and nbytes >= _NOTEWORTHY_NBYTES:
            users[pid] = nbytes
    return users


def _number_of(pci: str, kfd: Path) -> str | None:
    """The driver's number of the GPU at a PCI address such as 0000:03:00.0."""
    match = re.fullmatch(r"(\w+):(\w+):(\w+)\.(\w+)", pci)
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) for part in match.groups())
    location = bus << 8 | device << 3 | function
    for node in kfd.glob("topology/nodes/*"):
        lines = (line.split() for line in _read(node / "properties").splitlines())
        properties = {line[0]: line[1] for line in lines if len(line) == 2}
        if properties.get("location_id") == str(location) and properties.get("domain", "0") == str(domain):
            return _read(node / "gpu_id")
    return None


def _read(path: Path) -> str:
    """Empty where there is none, or none any more."""
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""
