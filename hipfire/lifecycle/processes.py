"""Which processes are hipfire's, and of which state root: told by proof, not by a name in a list.

A serve or download holds a memory file open that says who it is, with its pid and start time. Another process can
neither have it by accident, as it can a recycled pid or `hipfire serve` among its arguments, nor keep it when its
owner dies; and it needs no folder that can be written to. An engine has its state root among its arguments.
"""

import contextlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.procfs import arguments, open_files, parent, pids, start_time

SERVE, ENGINE, DOWNLOAD = "serve", "engine", "download"
"""The roles."""

_FILE = "hipfire-process"
_LINK = f"/memfd:{_FILE} (deleted)"
_ENGINE_MODULE = "hipfire.engine.worker"
_PYTHON = re.compile(r"python[\d.]*t?")


@attrs.frozen(kw_only=True)
class Process:
    """A running process of hipfire. `started` is its start time in the kernel's clock ticks.

    `model` is what it was started for, None where that is not known; a serve has host, port and, where it speaks TLS,
    `certfile`. `drain_timeout_s` is how long it may take to end when it is told to.
    """

    home: str
    role: str
    pid: int
    started: int
    model: str | None = None
    host: str | None = None
    port: int | None = None
    certfile: str | None = None
    drain_timeout_s: float = 0.0

    @property
    def alive(self) -> bool:
        return start_time(self.pid) == self.started

    @property
    def endpoint(self) -> Endpoint | None:
        """What a serve listens on."""
        if self.host is None or self.port is None:
            return None
        return Endpoint(host=self.host, port=self.port, certfile=self.certfile)


@contextlib.contextmanager
def announced(
    home: Path,
    role: str,
    *,
    model: str | None = None,
    endpoint: Endpoint | None = None,
    drain_timeout_s: float = 0.0,
) -> Iterator[None]:
    """Let other processes of this machine find this one, for as long as the block takes."""
    own = Process(
        home=str(home),
        role=role,
        pid=os.getpid(),
        started=start_time(os.getpid()) or 0,
        model=model,
        host=None if endpoint is None else endpoint.host,
        port=None if endpoint is None else endpoint.port,
        certfile=None if endpoint is None else endpoint.certfile,
        drain_timeout_s=drain_timeout_s,
    )
    with os.fdopen(os.memfd_create(_FILE), "wb", buffering=0) as file:
        file.write(json.dumps(attrs.asdict(own)).encode())
        yield


def find_processes(home: Path | None) -> list[Process]:
    """The processes of a state root, or with None of all of them, oldest first; a serve before its engine."""
    found = [process for pid in pids() for process in _processes_of(pid)]
    mine = [process for process in found if home is None or process.home == str(home)]
    return sorted(mine, key=lambda process: (process.started, process.pid))


def find_children(process: Process) -> list[Process]:
    """The processes that a process has started itself and that still run."""
    starts = {pid: start_time(pid) for pid in pids() if parent(pid) == process.pid}
    return [
        Process(home=process.home, role=process.role, pid=pid, started=started)
        for pid, started in starts.items()
        if started is not None
    ]


def _processes_of(pid: int) -> Iterator[Process]:
    """What a process is; a serve that downloads its model is two things."""
    words = arguments(pid)
    # Looking into every process's open files would take long.
    if not any("hipfire" in word for word in words):
        return
    started = start_time(pid)
    if started is None:
        return
    if (home := _engine_home(words)) is not None:
        yield Process(home=home, role=ENGINE, pid=pid, started=started)
    for text in open_files(pid, _LINK):
        try:
            process = Process(**json.loads(text))
        except (ValueError, TypeError):
            # Just being written, or of another version.
            continue
        # A child may have inherited it.
        if (process.pid, process.started) == (pid, started):
            yield process


def _engine_home(words: Sequence[str]) -> str | None:
    """The state root in the command line of an engine, None for any other. See `service.engine_process`."""
    match words:
        case [python, "-m", module, _, _, home] if module == _ENGINE_MODULE and _PYTHON.fullmatch(Path(python).name):
            return home
    return None
