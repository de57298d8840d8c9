"""Accepts connections, so many at a time, and winds them up at shutdown. Knows no HTTP: that is `connection`."""

import logging
import math
import ssl
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from socket import socket

import attrs
import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ASGIFramework

from hipfire.server.connection import Connection

log = logging.getLogger("hipfire.server")

_BACKLOG = 1024


@attrs.frozen(kw_only=True)
class Limits:
    """`head_timeout_s`: in which a request's head must arrive, from the connection's start or the last answer.

    `stall_timeout_s`: how long a client may leave what is sent to it unread; 0 is for ever. `linger_s`: how long a
    client that is silent may take to close after an answer. `cut_off_grace_s`: for the last frames of what is cut off.
    """

    stall_timeout_s: float
    drain_timeout_s: float
    max_connections: int = 512
    head_timeout_s: float = 30.0
    linger_s: float = 1.0
    cut_off_grace_s: float = 1.0


async def serve_sockets(
    app: ASGIFramework,
    sockets: Sequence[socket],
    *,
    limits: Limits,
    shutdown: trio.Event,
    cut_off: Callable[[], None],
    tls: ssl.SSLContext | None = None,
    task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve an ASGI application on bound sockets until `shutdown` and until what was in flight then is finished.

    All of them speak TLS if `tls` is given, and plain HTTP if not.

    What is not by the end of the drain timeout is cut off: `cut_off` is called, and a moment later all is closed.
    """
    await _Server(app, limits, tls).serve(sockets, shutdown=shutdown, cut_off=cut_off, task_status=task_status)


class _Server:
    def __init__(self, app: ASGIFramework, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._app = ASGIWrapper(app)
        self._limits = limits
        self._tls = tls
        self._context = WorkerContext(None)
        self._config = _hypercorn_config(limits)
        self._slots = trio.Semaphore(limits.max_connections)
        self._open: set[Connection] = set()

    async def serve(
        self,
        sockets: Sequence[socket],
        *,
        shutdown: trio.Event,
        cut_off: Callable[[], None],
        task_status: "trio.TaskStatus[None]",
    ) -> None:
        listeners = [_CappedListener(sock, self._slots) for sock in sockets]
        async with trio.open_nursery() as outer:
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    await accepting.start(
                        partial(trio.serve_listeners, self._handle, listeners, handler_nursery=connections)
                    )
                    task_status.started()
                    await shutdown.wait()
                    # Closes the listeners: the port is free at once.
                    accepting.cancel_scope.cancel()
                # Idle connections close now, the others after their answer.
                await self._context.terminated.set()
                outer.start_soon(self._end, connections.cancel_scope, cut_off)
            outer.cancel_scope.cancel()

    async def _handle(self, stream: trio.SocketStream) -> None:
        connection = Connection(
            self._app,
            self._config,
            self._context,
            stream,
            tls=self._tls,
            stall_timeout_s=self._limits.stall_timeout_s or math.inf,
            linger_s=self._limits.linger_s,
        )
        self._open.add(connection)
        try:
            await connection.run()
        except Exception:
            # Whatever it was, the other connections had no part in it.
            log.exception("a connection failed")
        finally:
            self._open.discard(connection)
            self._slots.release()

    async def _end(self, connections: trio.CancelScope, cut_off: Callable[[], None]) -> None:
        await trio.sleep(self._limits.drain_timeout_s)
        cut_off()
        await trio.sleep(self._limits.cut_off_grace_s)
        connections.cancel()
        for connection in self._open:
            # Sending is shielded from cancellation, but not from this.
            connection.abort()


class _CappedListener(trio.abc.Listener[trio.SocketStream]):
    """Accepts while there is a slot; who comes then waits in the kernel's backlog. Whoever handles a connection
    releases its slot.
    """

    def __init__(self, sock: socket, slots: trio.Semaphore) -> None:
        sock.listen(_BACKLOG)
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))
        self._slots = slots

    async def accept(self) -> trio.SocketStream:
        await self._slots.acquire()
        with ExitStack() as unless_accepted:
            unless_accepted.callback(self._slots.release)
            stream = await self._listener.accept()
            unless_accepted.pop_all()
        return stream

    async def aclose(self) -> None:
        await self._listener.aclose()


def _hypercorn_config(limits: Limits) -> Config:
    config = Config()
    config.errorlog = log
    config.include_server_header = False
    # Its idle timer runs from a connection's start, or from the end of an answer, to the end of the next head.
    config.keep_alive_timeout = limits.head_timeout_s
    return config
