"""How much memory the host has left, and the error for wanting more. Knows no device and no model."""

from pathlib import Path

from hipfire.errors import OutOfMemory

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")
_MIB = 1 << 20


def available_nbytes(meminfo: Path = _MEMINFO, cgroup: Path = _CGROUP) -> int | None:
    """Bytes that can be taken without swapping, of the host or, where it is less, of the container's limit.

    None where the system does not say (it is not Linux).
    """
    limits = [limit for limit in (_host_nbytes(meminfo), _container_nbytes(cgroup)) if limit is not None]
    return min(limits, default=None)


def require_memory(what: str, needed_nbytes: int, free_nbytes: int | None) -> None:
    """Raise OutOfMemory, with both numbers, where less is free than `what` needs. None: nobody knows, so try."""
    if free_nbytes is not None and needed_nbytes > free_nbytes:
        needed, free = -(-needed_nbytes // _MIB), free_nbytes // _MIB
        raise OutOfMemory(
            f"{what} needs {needed} MiB of memory and {free} MiB are free",
            hint="use a shorter context, fewer sequences or a smaller model",
        )


def _host_nbytes(meminfo: Path) -> int | None:
    if not meminfo.is_file():
        return None
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return None


def _container_nbytes(cgroup: Path) -> int | None:
    """The limit of cgroup v2 less what is in use. Page cache that nobody used lately can be had back, so is free."""
    limit, used, stat = (cgroup / name for name in ("memory.max", "memory.current", "memory.stat"))
    if not (limit.is_file() and used.is_file() and stat.is_file()):
        return None
    text = limit.read_text().strip()
    if text == "max":
        return None
    fields = dict(line.split() for line in stat.read_text().splitlines())
    return max(int(text) - int(used.read_text()) + int(fields.get("inactive_file", "0")), 0)
