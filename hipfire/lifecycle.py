"""What one serve of a machine owes the next: the port it holds, and the file that says which process holds it.

Knows no HTTP and no engine: it gives bound sockets to whoever serves on them.
"""

import contextlib
import errno
import json
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs

from hipfire.errors import BindError

_BACKLOG = 512


@attrs.frozen(kw_only=True)
class Serving:
    """The process that serves, as its pidfile tells. `started` is its start time in the kernel's clock ticks."""

    pid: int
    started: int
    host: str
    port: int

    @property
    def alive(self) -> bool:
        """Whether that very process runs: a process of the same number but another start is a stranger."""
        return start_time(self.pid) == self.started


def bind(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host; `localhost` has two. Raises BindError, having taken nothing.

    `::` takes IPv4 too, as most machines are set up.
    """
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BindError(f"{host!r} is no address of this machine: {error}", hint="try 127.0.0.1") from error
    with ExitStack() as cleanup:
        sockets = []
        # A resolver may list an address twice.
        for family, _, _, _, address in dict.fromkeys(addresses):
            listener = cleanup.enter_context(socket.socket(family, socket.SOCK_STREAM))
            _listen(listener, address, wildcard=host == "::")
            sockets.append(listener)
        cleanup.pop_all()
    return sockets


def _listen(listener: socket.socket, address: tuple[object, ...], *, wildcard: bool) -> None:
    # A port whose last connections still linger may be taken again; one that somebody listens on may not.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if wildcard else 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        where = f"{address[0]} port {address[1]}"
        if error.errno == errno.EADDRINUSE:
            raise BindError(
                f"{where} is in use", hint="another serve? choose another port: hipfire serve 11436"
            ) from error
        raise BindError(f"cannot listen on {where}: {error.strerror}") from error


@contextlib.contextmanager
def pidfile(path: Path, *, host: str, port: int) -> Iterator[None]:
    """Write the pidfile; remove it in the end, unless another serve has written its own by then."""
    own = Serving(pid=os.getpid(), started=start_time(os.getpid()) or 0, host=host, port=port)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{own.pid}")
    draft.write_text(json.dumps(attrs.asdict(own)) + "\n")
    draft.replace(path)
    try:
        yield
    finally:
        if read_pidfile(path) == own:
            path.unlink(missing_ok=True)


def read_pidfile(path: Path) -> Serving | None:
    """What the pidfile says; None where there is none, or where it is not one of ours."""
    try:
        return Serving(**json.loads(path.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def start_time(pid: int) -> int | None:
    """When a process was started, in clock ticks since the machine was; None where there is no such process."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # Field 22 of proc_pid_stat(5). The second, the command's name in brackets, may itself have spaces and brackets.
    return int(status.rpartition(")")[2].split()[19])
