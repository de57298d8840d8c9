"""Ends processes of hipfire, and those alone. Knows no pidfile and no terminal."""

import os
import select
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

import attrs

from hipfire.errors import HipfireError
from hipfire.lifecycle.processes import Process, find_children

# What is killed goes at once, unless a driver holds it in the kernel.
_KILL_TIMEOUT_S = 10.0


class StopFailed(HipfireError):
    """A process does not end, or may not be ended by us."""

    code = "stop_failed"


@attrs.frozen(kw_only=True)
class _Handle:
    """A process by a descriptor, which never means another one, as a number does once the process is gone."""

    process: Process
    descriptor: int

    def send(self, number: signal.Signals) -> None:
        try:
            signal.pidfd_send_signal(self.descriptor, number)
        except ProcessLookupError:
            # It has ended by itself.
            return
        except PermissionError as error:
            raise StopFailed(f"process {self.process.pid} belongs to another user") from error

    def ended(self, deadline: float) -> bool:
        """Wait for its end until a time of the monotonic clock."""
        ready, _, _ = select.select([self.descriptor], [], [], max(deadline - time.monotonic(), 0.0))
        return bool(ready)


def terminate(processes: Iterable[Process], *, timeout_s: float) -> list[Process]:
    """Ask processes to end, and wait for them; return those that did not within the time. Raises StopFailed."""
    with _handles(processes) as handles:
        for handle in handles:
            handle.send(signal.SIGTERM)
        deadline = time.monotonic() + timeout_s
        return [handle.process for handle in handles if not handle.ended(deadline)]


def kill(processes: Iterable[Process]) -> None:
    """Kill processes with their children and wait for them. Raises StopFailed when one does not go."""
    with _handles(processes) as handles, ExitStack() as cleanup:
        children = [child for handle in handles for child in _children(handle, cleanup)]
        for handle in (*handles, *children):
            handle.send(signal.SIGKILL)
        deadline = time.monotonic() + _KILL_TIMEOUT_S
        for handle in (*handles, *children):
            if not handle.ended(deadline):
                raise StopFailed(
                    f"process {handle.process.pid} was killed and does not end",
                    hint="a driver may hold it; the kernel's log says more: dmesg",
                )


@contextmanager
def _handles(processes: Iterable[Process]) -> Iterator[Sequence[_Handle]]:
    """Handles of those processes that still run, one each: a process that is two things gets no signal twice."""
    with ExitStack() as cleanup:
        yield [
            handle
            for process in {process.pid: process for process in processes}.values()
            for handle in _handle(process, cleanup)
        ]


def _handle(process: Process, cleanup: ExitStack) -> Iterator[_Handle]:
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    cleanup.callback(os.close, descriptor)
    # Looked at with the descriptor in hand: from here on it cannot become a stranger.
    if process.alive:
        yield _Handle(process=process, descriptor=descriptor)


def _children(parent: _Handle, cleanup: ExitStack) -> Iterator[_Handle]:
    for child in find_children(parent.process):
        yield from _handle(child, cleanup)
