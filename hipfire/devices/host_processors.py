"""How many threads of work the host has room for. Knows no device and no model."""

import math
import os
from collections.abc import Iterable
from pathlib import Path

_CPUS = Path("/sys/devices/system/cpu")
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def n_usable_cores(cpus: Iterable[int] | None = None, *, topology: Path = _CPUS, quota: Path = _QUOTA) -> int:
    """The physical cores that this process may use, or fewer where a container's quota gives less time; at least 1.

    Two threads on one core share what the kernels are bound by, so a second one on a core only gets in the way. `cpus`
    are the logical processors, by default those that the process may run on.
    """
    usable = _affinity() if cpus is None else set(cpus)
    cores = {_siblings(topology / f"cpu{cpu}" / "topology" / "thread_siblings_list", cpu) for cpu in usable}
    return max(1, min(len(cores), _quota_cores(quota)))


def _affinity() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _siblings(path: Path, cpu: int) -> str:
    """The logical processors of a core, as the system writes them; the one itself where it says nothing."""
    return path.read_text().strip() if path.is_file() else str(cpu)


def _quota_cores(path: Path) -> int:
    """Cores' worth of time of the control group, rounded up; more than there are where it has no limit."""
    if not path.is_file():
        return 1 << 20
    allowed, period = path.read_text().split()
    return 1 << 20 if allowed == "max" else math.ceil(int(allowed) / int(period))
