"""Other processes, as Linux tells of them in /proc. Knows no hipfire.

A process may end at any moment: everything here then has an empty answer, and raises nothing.
"""

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PAGE_NBYTES = os.sysconf("SC_PAGE_SIZE")


def pids() -> Iterator[int]:
    """The process ids of this machine, as far as we may see them."""
    return (int(entry.name) for entry in os.scandir(_PROC) if entry.name.isdigit())


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine was; None where there is no such process."""
    fields = _stat(pid)
    return int(fields[19]) if fields else None


def parent(pid: int) -> int | None:
    """The process that started this one, or that took it over; None where there is no such process."""
    fields = _stat(pid)
    return int(fields[1]) if fields else None


def age_s(started: int) -> float:
    """Seconds since that start time."""
    uptime_s = float((_PROC / "uptime").read_text().split()[0])
    return max(uptime_s - started / _TICKS_PER_S, 0.0)


def memory_nbytes(pid: int) -> int:
    """Bytes of memory that are resident, mapped files included."""
    words = _read(pid, "statm").split()
    return int(words[1]) * _PAGE_NBYTES if words else 0


def arguments(pid: int) -> list[str]:
    """The command line; empty for a process that has ended, is being reaped, or is the kernel's own."""
    line = _read(pid, "cmdline").rstrip(b"\0")
    return [os.fsdecode(word) for word in line.split(b"\0")] if line else []


def owner(pid: int) -> int | None:
    """The user id that a process belongs to."""
    try:
        return (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None


def open_files(pid: int, name: str) -> Iterator[bytes]:
    """What is in those files that a process holds open under a name such as `/memfd:x (deleted)`.

    Nothing where we may not look: another user's process.
    """
    folder = _PROC / str(pid) / "fd"
    try:
        descriptors = os.listdir(folder)  # noqa: PTH208
    except OSError:
        return
    for descriptor in descriptors:
        path = f"{folder}/{descriptor}"
        try:
            if os.readlink(path) == name:  # noqa: PTH115
                yield Path(path).read_bytes()
        except OSError:
            continue


def _stat(pid: int) -> list[str]:
    """The fields of proc_pid_stat(5) from the third on; empty where there is no such process, or only its corpse."""
    # The second, the command's name in brackets, may itself have spaces and brackets.
    fields = os.fsdecode(_read(pid, "stat")).rpartition(")")[2].split()
    return [] if not fields or fields[0] in "ZX" else fields


def _read(pid: int, name: str) -> bytes:
    try:
        return (_PROC / str(pid) / name).read_bytes()
    except OSError:
        return b""
