"""Real sockets for tests of the server: what serves, and what connects to it, byte by byte."""

import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import trio
from hypercorn.typing import ASGIFramework

from hipfire.server.transport import Limits, serve_sockets

# Far above what any of this takes, far below what a person waits.
PATIENCE_S = 5.0


def listening_socket() -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", 0))
    return sock


@attrs.frozen(kw_only=True)
class Serving:
    port: int
    shutdown: trio.Event
    ended: trio.Event


@asynccontextmanager
async def serving(
    app: ASGIFramework,
    *,
    cut_off: Callable[[], None] = lambda: None,
    limits: Limits | None = None,
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[Serving]:
    """An application on a port of its own, until the block ends."""
    sock = listening_socket()
    here = Serving(port=sock.getsockname()[1], shutdown=trio.Event(), ended=trio.Event())

    async def serve(*, task_status: "trio.TaskStatus[None]") -> None:
        await serve_sockets(
            app,
            [sock],
            limits=limits or Limits(stall_timeout_s=30, drain_timeout_s=30),
            shutdown=here.shutdown,
            cut_off=cut_off,
            tls=tls,
            task_status=task_status,
        )
        here.ended.set()

    async with trio.open_nursery() as nursery:
        await nursery.start(serve)
        with trio.fail_after(PATIENCE_S):
            yield here
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def connected(port: int, *, receive_buffer: int | None = None) -> AsyncIterator[trio.SocketStream]:
    sock = trio.socket.socket()
    if receive_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await sock.connect(("127.0.0.1", port))
    async with trio.SocketStream(sock) as stream:
        yield stream


async def read_to_end(stream: trio.SocketStream) -> bytes:
    """All that comes until the other side closes."""
    data = b""
    async for chunk in stream:
        data += chunk
    return data


async def read_answer(stream: trio.SocketStream) -> bytes:
    """One answer of a connection that stays open; it must have a Content-Length."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += await stream.receive_some()
    head, _, body = data.partition(b"\r\n\r\n")
    lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    while len(body) < int(lengths[0]):
        body += await stream.receive_some()
    return head + b"\r\n\r\n" + body


async def exchange(port: int, request: bytes) -> bytes:
    """Send a request, and read until the server closes."""
    async with connected(port) as stream:
        await stream.send_all(request)
        return await read_to_end(stream)
