"""The port that a serve holds. Knows no HTTP: it gives bound sockets to whoever serves on them."""

import errno
import socket
from contextlib import ExitStack

from hipfire.errors import BindError

_BACKLOG = 512


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
