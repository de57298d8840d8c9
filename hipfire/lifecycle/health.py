"""Asks a serve how it is, over the few lines of HTTP that this takes: an HTTP library takes longer to import."""

import json
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from hipfire.lifecycle.endpoint import Endpoint

TIMEOUT_S = 0.5


def read_health(endpoint: Endpoint) -> Mapping[str, Any] | None:
    """What a serve says at /health; None when nobody answers there, or something else does."""
    body = _get(endpoint, "/health")
    return body if body is not None and "loading_model" in body else None


def read_stats(endpoint: Endpoint, *, key: str | None) -> Mapping[str, Any] | None:
    """What a serve says at /stats to who has this API key; None when it says nothing, or something else answers."""
    body = _get(endpoint, "/stats", key)
    return body if body is not None and "queue_depth" in body else None


def takes_connections(endpoint: Endpoint) -> bool:
    """Whether anybody listens there."""
    try:
        _connect(endpoint).close()
    except OSError:
        return False
    return True


def _connect(endpoint: Endpoint) -> socket.socket:
    return socket.create_connection((endpoint.reached_at, endpoint.port), timeout=TIMEOUT_S)


def _get(endpoint: Endpoint, path: str, key: str | None = None) -> Mapping[str, Any] | None:
    """A JSON object from our own machine: through no proxy, and soon or not at all."""
    head = [f"GET {path} HTTP/1.1", "Host: localhost", "Connection: close"]
    if key is not None:
        head.append(f"Authorization: Bearer {key}")
    try:
        with _spoken_to(_connect(endpoint), endpoint) as connection:
            connection.sendall("\r\n".join([*head, "", ""]).encode())
            reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        status, _, rest = reply.partition(b"\r\n")
        document = json.loads(rest.partition(b"\r\n\r\n")[2])
    except (OSError, ValueError):
        return None
    return document if b" 200 " in status and isinstance(document, dict) else None


def _spoken_to(connection: socket.socket, endpoint: Endpoint) -> socket.socket:
    """The connection with TLS on it, where TLS is spoken there. Raises OSError, having closed it."""
    if endpoint.certfile is None:
        return connection
    # Here and not above: without TLS, which is the rule, it would double the time that this takes.
    import ssl  # noqa: PLC0415

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # What is asked never leaves this machine, and the file may hold the next certificate already.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with ExitStack() as unless_secured:
        unless_secured.callback(connection.close)
        secured = context.wrap_socket(connection)
        unless_secured.pop_all()
    return secured
