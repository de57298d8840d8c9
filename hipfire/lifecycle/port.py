"""The port that a serve holds. Knows no HTTP: it gives bound sockets to whoever serves on them."""

import errno
import socket
from contextlib import ExitStack
from pathlib import Path

from hipfire.errors import BindError
from hipfire.lifecycle.processes import SERVE, find_processes

_BACKLOG = 512


def bind(host: str, port: int, *, home: Path) -> list[socket.socket]:
    """Listen on every address of a host; `localhost` has two. Raises BindError, having taken nothing.

    The error names the serve of the state root `home` that has the port, if it is one.
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
            try:
                _listen(listener, address, wildcard=host == "::")
            except OSError as error:
                raise _bind_error(error, address, home) from error
            sockets.append(listener)
        cleanup.pop_all()
    return sockets


def _listen(listener: socket.socket, address: tuple[object, ...], *, wildcard: bool) -> None:
    # A port whose last connections still linger may be taken again; one that somebody listens on may not.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if listener.family == socket.AF_INET6:
        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if wildcard else 1)
    listener.bind(address)
    listener.listen(_BACKLOG)


def _bind_error(error: OSError, address: tuple[object, ...], home: Path) -> BindError:
    host, port, *_ = address
    if error.errno != errno.EADDRINUSE:
        hint = "it is no address of this machine" if error.errno == errno.EADDRNOTAVAIL else None
        return BindError(f"cannot listen on {host} port {port}: {error.strerror}", hint=hint)
    hint = "another serve? choose another port: hipfire serve 11436"
    for process in find_processes(home):
        if process.role == SERVE and process.port == port:
            hint = f"a serve of yours is up there (process {process.pid}): hipfire stop {port}, or choose another port"
    return BindError(f"{host} port {port} is in use", hint=hint)
