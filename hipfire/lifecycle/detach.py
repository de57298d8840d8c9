"""Goes on in the background: a child of its own session that writes to a log, and a parent that waits until it is up.

Knows no server: what the child does is up to whoever calls.
"""

import contextlib
import enum
import io
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from hipfire.errors import HipfireError
from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.health import read_health
from hipfire.lifecycle.logfile import open_log, rotate, tail

PROCESS_TIMEOUT_S = 60.0
MODEL_TIMEOUT_S = 300.0

_POLL_S = 0.1
_KILL_AFTER_S = 5.0
_N_TAIL = 20
_ENDINGS = (signal.SIGINT, signal.SIGTERM)
"""What calls a start off. From the fork on they wait until somebody is there to end the child."""


class StartFailed(HipfireError):
    """A serve in the background did not come up; none is left behind. `lines` is the end of its log."""

    code = "start_failed"

    def __init__(self, message: str, *, lines: list[str], hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.lines = lines


class ModelState(enum.Enum):
    """What the child's `report` says in the end of the model that it loads first; before, it says percentages."""

    LOADED = 101
    FAILED = 102


@attrs.frozen(kw_only=True)
class Child:
    """The parent's end: `descriptor` is the process, `reports` says what became of the model."""

    pid: int
    descriptor: int
    reports: int
    log: Path
    log_start: int


Report = Callable[[ModelState | int], None]


def detach(log: Path) -> Child | Report:
    """Fork. The parent gets the child, the child a function that reports to the parent. Call it before any thread is.

    Nothing interrupts the parent until it calls `wait_until_up`.
    In the child stdin is empty, and stdout and stderr are the log. Raises StartFailed when that cannot be written.
    """
    rotate(log)
    try:
        out = open_log(log)
    except OSError as error:
        raise StartFailed(
            f"cannot write {log}: {error.strerror}", lines=[], hint="HIPFIRE_HOME puts it elsewhere"
        ) from error
    log_start = os.fstat(out).st_size
    reports, reporter = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    pid = os.fork()
    if pid:
        os.close(out)
        os.close(reporter)
        return Child(pid=pid, descriptor=os.pidfd_open(pid), reports=reports, log=log, log_start=log_start)
    os.close(reports)
    os.setsid()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
    _redirect(out)

    def report(said: ModelState | int) -> None:
        # The parent may have seen enough and gone.
        try:
            os.write(reporter, bytes([said.value if isinstance(said, ModelState) else said]))
        except BrokenPipeError:
            return

    return report


def _redirect(out: int) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, out), (2, out)):
        os.dup2(source, target)
    for source in {nothing, out} - {0, 1, 2}:
        os.close(source)
    sys.stdout = io.TextIOWrapper(_Log(1), encoding="utf-8", errors="replace", write_through=True)
    sys.stderr = io.TextIOWrapper(_Log(2), encoding="utf-8", errors="backslashreplace", write_through=True)


class _Log(io.RawIOBase):
    """Writes to a descriptor, and drops what does not go: a full disk under its log must not end a server."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def write(self, data: Any, /) -> int:
        rest = memoryview(data).cast("B")
        nbytes = len(rest)
        with contextlib.suppress(OSError):
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        return nbytes


def wait_until_up(
    child: Child, endpoint: Endpoint, *, for_model: bool, on_loading: Callable[[float], None] = lambda _: None
) -> None:
    """Wait until the child serves and, if asked to, has its model, whose load `on_loading` hears of in fractions.

    Raises StartFailed, having ended the child.
    """
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)
        _wait_for_process(child, endpoint)
        if for_model:
            _wait_for_model(child, on_loading)
    except BaseException:
        # Ctrl-C too: a start that was called off leaves nothing behind.
        _end(child)
        raise


def _wait_for_process(child: Child, endpoint: Endpoint) -> None:
    deadline = time.monotonic() + PROCESS_TIMEOUT_S
    while (read_health(endpoint) or {}).get("pid") != child.pid:
        if _ended(child, _POLL_S):
            raise _failure(child, "the serve ended while it was starting")
        if time.monotonic() > deadline:
            raise _failure(child, f"the serve does not answer after {PROCESS_TIMEOUT_S:g} s")


def _wait_for_model(child: Child, on_loading: Callable[[float], None]) -> None:
    deadline = time.monotonic() + MODEL_TIMEOUT_S
    while True:
        timeout_s = max(deadline - time.monotonic(), 0.0)
        ready, _, _ = select.select([child.reports, child.descriptor], [], [], timeout_s)
        if not ready:
            raise _failure(
                child, f"the model is not loaded after {MODEL_TIMEOUT_S:g} s", hint="without --wait it may be"
            )
        # Nothing to read is the end of the child, which closes the pipe as well.
        said = os.read(child.reports, 1) if child.reports in ready else b""
        if not said:
            raise _failure(child, "the serve ended while it loaded the model")
        if said[0] == ModelState.FAILED.value:
            raise _failure(child, "the model could not be loaded")
        if said[0] == ModelState.LOADED.value:
            return
        on_loading(said[0] / 100)


def _failure(child: Child, message: str, *, hint: str | None = None) -> StartFailed:
    lines = tail(child.log, start=child.log_start, n_lines=_N_TAIL)
    return StartFailed(message, lines=lines, hint=hint or f"its log: {child.log}")


def _end(child: Child) -> None:
    """End the child, which is ours and not waited for, so that its number is its own still."""
    os.kill(child.pid, signal.SIGTERM)
    if not _ended(child, _KILL_AFTER_S):
        os.kill(child.pid, signal.SIGKILL)
    os.waitpid(child.pid, 0)


def _ended(child: Child, timeout_s: float) -> bool:
    ready, _, _ = select.select([child.descriptor], [], [], timeout_s)
    return bool(ready)
