"""The pidfile: which process serves. Knows not whether that is true: see `processes`."""

import contextlib
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs

from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.procfs import start_time

log = logging.getLogger("hipfire.lifecycle")


@attrs.frozen(kw_only=True)
class Serving:
    """The process that serves, as its pidfile tells. `started` is its start time in the kernel's clock ticks.

    `certfile`: it speaks TLS, with this certificate.
    """

    pid: int
    started: int
    host: str
    port: int
    certfile: str | None = None

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(host=self.host, port=self.port, certfile=self.certfile)

    @property
    def alive(self) -> bool:
        """Whether that very process runs: a process of the same number but another start is a stranger."""
        return start_time(self.pid) == self.started


@contextlib.contextmanager
def pidfile(path: Path, endpoint: Endpoint) -> Iterator[Callable[[], None]]:
    """Write the pidfile; remove it in the end, unless another serve has written its own by then.

    What it yields removes it at once. Where it cannot be written, that is logged and nothing else: a server is more
    use than its pidfile, and `processes` finds it without.
    """
    own = Serving(
        pid=os.getpid(),
        started=start_time(os.getpid()) or 0,
        host=endpoint.host,
        port=endpoint.port,
        certfile=endpoint.certfile,
    )

    def remove() -> None:
        remove_pidfile(path, own)

    try:
        _write(path, own)
    except OSError as error:
        log.warning("no pidfile: cannot write %s: %s", path, error.strerror)
    try:
        yield remove
    finally:
        remove()


def _write(path: Path, own: Serving) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{own.pid}")
    try:
        draft.write_text(json.dumps(attrs.asdict(own)) + "\n")
        draft.replace(path)
    except OSError:
        # Of a full disk, half of it may be there.
        draft.unlink(missing_ok=True)
        raise


def remove_pidfile(path: Path, serving: Serving) -> None:
    """Remove the pidfile, unless it says something else by now."""
    if read_pidfile(path) == serving:
        path.unlink(missing_ok=True)


def read_pidfile(path: Path) -> Serving | None:
    """What the pidfile says; None where there is none, or where it is not one of ours."""
    try:
        return Serving(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None
