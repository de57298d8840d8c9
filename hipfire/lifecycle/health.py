"""Asks a serve how it is, over the few lines of HTTP that this takes: an HTTP library takes longer to import."""

import json
import socket
from collections.abc import Mapping
from typing import Any

# What listens on every address is reached on the loopback one.
_REACHED_AT = {"0.0.0.0": "127.0.0.1", "::": "::1"}

TIMEOUT_S = 0.5


def reached_at(host: str) -> str:
    """Where something that listens on this host is reached from its own machine."""
    return _REACHED_AT.get(host, host)


def read_health(host: str, port: int) -> Mapping[str, Any] | None:
    """What a serve says at /health; None when nobody answers there, or something else does."""
    body = _get(host, port, "/health")
    return body if body is not None and "loading_model" in body else None


def read_stats(host: str, port: int) -> Mapping[str, Any] | None:
    """What a serve says at /stats; None when nobody answers there, or something else does."""
    body = _get(host, port, "/stats")
    return body if body is not None and "queue_depth" in body else None


def takes_connections(host: str, port: int) -> bool:
    """Whether anybody listens there."""
    try:
        socket.create_connection((reached_at(host), port), timeout=TIMEOUT_S).close()
    except OSError:
        return False
    return True


def _get(host: str, port: int, path: str) -> Mapping[str, Any] | None:
    """A JSON object from our own machine: through no proxy, and soon or not at all."""
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
    try:
        with socket.create_connection((reached_at(host), port), timeout=TIMEOUT_S) as connection:
            connection.sendall(request)
            reply = b"".join(iter(lambda: connection.recv(1 << 16), b""))
        head, _, body = reply.partition(b"\r\n\r\n")
        document = json.loads(body)
    except (OSError, ValueError):
        return None
    return document if b" 200 " in head.partition(b"\r\n")[0] and isinstance(document, dict) else None
