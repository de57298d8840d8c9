"""One client's connection: bounds what it may take and closes it for certain. Knows no routes.

Hypercorn speaks HTTP/1.1 and HTTP/2. What its own connection, in 0.18 on Trio, does not do is done here:
- An answer's end cancels the task that sends it, in the middle of closing the socket or of starting the idle timer,
  so that connections stay open for ever. Here neither can be cancelled.
- A client that stops reading blocks its task for ever, beyond the reach of cancellation. Here sending has a deadline.
- Nobody reads from a connection while a request is answered if more bytes came already, or an upgrade was offered, so
  nobody notices when the client goes. Here reading does not wait for the protocol.
"""

import os
import ssl
from contextlib import suppress
from typing import Any, cast

import trio
from hypercorn.app_wrappers import ASGIWrapper
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.protocol import ProtocolWrapper
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from hipfire.server.http1 import Http1Protocol

_RECEIVE_NBYTES = 1 << 16
# Chunks that may be read ahead of what the protocol has dealt with.
_MAX_READ_AHEAD = 16
# So much may go out before others have a turn.
_TURN_NBYTES = 1 << 16
_MAX_LINGER_S = 30.0
_HTTP2 = "h2"


class _HalfClosing(trio.abc.Stream):
    """A socket's stream that, told to close, only says that no more will come: what TLS needs underneath, since closing
    it is the one way to have it say its own goodbye, and a client that still sends must be read from.
    """

    def __init__(self, tcp: trio.SocketStream) -> None:
        self._tcp = tcp

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._tcp.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._tcp.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await self._tcp.receive_some(max_bytes)

    async def aclose(self) -> None:
        await self._tcp.send_eof()


class Connection(TCPServer):
    """A TCP connection, on which TLS is spoken if `tls` is given.

    `stall_timeout_s`: how long the client may leave what is sent to it unread. `linger_s`: a client that still sends
    when its answer is complete, such as one refused for its size, would lose the answer to a reset if the socket were
    closed at once; so it is read from until it closes or is silent for this long.
    """

    def __init__(
        self,
        app: ASGIWrapper,
        config: Config,
        context: WorkerContext,
        stream: trio.SocketStream,
        *,
        tls: ssl.SSLContext | None = None,
        stall_timeout_s: float,
        linger_s: float,
    ) -> None:
        secured = trio.SSLStream(_HalfClosing(stream), tls, server_side=True) if tls is not None else None
        # Declared for TLS only, and made for both.
        super().__init__(app, config, context, ConnectionState({}), cast(Any, secured or stream))
        self._tcp = stream
        self._tls = secured
        self._stall_timeout_s = stall_timeout_s
        self._linger_s = linger_s
        self._eof = trio.Event()
        self._linger: trio.CancelScope | None = None
        # Since others last had a turn.
        self._n_sent_at_once = 0

    def abort(self) -> None:
        """Close the socket now. Whoever reads or sends is woken up. Synchronous and idempotent."""
        self._tcp.socket.close()

    async def run(self) -> None:
        """Serve requests until either side ends the connection, then close the socket."""
        try:
            if not await self._shakes_hands():
                return
            with trio.CancelScope() as scope:
                async with TaskGroup() as self._task_group:
                    self.protocol = self._make_protocol()
                    await self.protocol.initiate()
                    await self.idle_task.restart(self._task_group, self._idle_timeout)
                    await self._read_data()
                    scope.cancel()
        finally:
            self.abort()

    async def _shakes_hands(self) -> bool:
        """Whether TLS begins, in the time that a head may take; without TLS there is nothing to begin."""
        if self._tls is None:
            return True
        is_done = False
        async with trio.open_nursery() as nursery:
            nursery.cancel_scope.deadline = trio.current_time() + self.config.keep_alive_timeout
            nursery.start_soon(self._cancel_when_stopping, nursery.cancel_scope)
            with suppress(*_GONE):
                await self._tls.do_handshake()
                is_done = True
            nursery.cancel_scope.cancel()
        return is_done

    async def _cancel_when_stopping(self, scope: trio.CancelScope) -> None:
        await self.context.terminated.wait()
        scope.cancel()

    def _make_protocol(self) -> ProtocolWrapper:
        own = self._tcp.socket.getsockname()[:2]
        try:
            client = self._tcp.socket.getpeername()[:2]
        except OSError:
            # It went before anything began; reading will notice.
            client = None
        is_tls = self._tls is not None
        alpn = self._tls.selected_alpn_protocol() if self._tls is not None else None
        state = ConnectionState(self.state)
        protocol = ProtocolWrapper(
            self.app, self.config, self.context, self._task_group, state, is_tls, client, own, self.protocol_send, alpn
        )
        if alpn != _HTTP2:
            protocol.protocol = Http1Protocol(
                self.app, self.config, self.context, self._task_group, state, is_tls, client, own, self.protocol_send
            )
        return protocol

    async def protocol_send(self, event: Event) -> None:
        # Whoever sends may be cancelled at any moment, at the latest by the end of its own answer. Half a frame, or a
        # timer that was not started again, would spoil the connection for the requests after it.
        if isinstance(event, RawData):
            await self._send(event.data)
        else:
            with trio.CancelScope(shield=True):
                await super().protocol_send(event)

    async def _send(self, data: bytes) -> None:
        sent = self._send_at_once(data)
        if sent < len(data):
            await self._send_in_time(data[sent:])
        elif self._n_sent_at_once >= _TURN_NBYTES:
            self._n_sent_at_once = 0
            await trio.lowlevel.checkpoint()

    def _send_at_once(self, data: bytes) -> int:
        """Send what the socket takes without waiting, and return how much that is. It is nearly always all of a frame,
        and neither a deadline nor a turn of the loop is paid for, which would be a good part of what a token costs.
        """
        if self._tls is not None or self.send_lock.locked():
            return 0
        try:
            sent = os.write(self._tcp.socket.fileno(), data)
        except OSError:
            # It is full, or gone: whoever waits for it will tell which.
            return 0
        self._n_sent_at_once += sent
        return sent

    async def _send_in_time(self, data: bytes) -> None:
        with trio.CancelScope(deadline=trio.current_time() + self._stall_timeout_s, shield=True):
            await self.send_lock.acquire()
            try:
                await self.stream.send_all(data)
            except _GONE:
                pass
            else:
                return
            finally:
                self.send_lock.release()
        self.abort()
        # An answer that waits for nothing else would never hear that there is nobody to send it to.
        await trio.lowlevel.checkpoint()

    async def _read_data(self) -> None:
        """Pass on what comes, until nothing more does."""
        ahead, to_handle = trio.open_memory_channel[bytes](_MAX_READ_AHEAD)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._handle, to_handle)
            try:
                await self._receive(ahead)
            finally:
                # A client that only closed its own side counts as gone too: nobody can tell the two apart in time.
                self._eof.set()
            # Whoever is sending must not wait for it any more.
            self.abort()
            nursery.cancel_scope.cancel()
        await self.protocol.handle(Closed())

    async def _handle(self, to_handle: trio.MemoryReceiveChannel[bytes]) -> None:
        async for data in to_handle:
            await self.protocol.handle(RawData(data))

    async def _receive(self, ahead: trio.MemorySendChannel[bytes]) -> None:
        with suppress(*_GONE):
            while data := await self.stream.receive_some(_RECEIVE_NBYTES):
                if self._linger is not None:
                    self._linger.deadline = trio.current_time() + self._linger_s
                    break
                with trio.move_on_after(self._stall_timeout_s) as patience:
                    await ahead.send(bytes(data))
                if patience.cancelled_caught:
                    # It sends request after request without waiting for answers.
                    return
        with suppress(*_GONE):
            while self._linger is not None and await self._tcp.receive_some(_RECEIVE_NBYTES):
                self._linger.deadline = trio.current_time() + self._linger_s

    async def _close(self) -> None:
        """Say that no more will come, wait for the client to close, and close."""
        if self._linger is not None:
            return
        with (
            trio.move_on_after(_MAX_LINGER_S, shield=True),
            trio.move_on_after(self._linger_s) as self._linger,
            suppress(*_GONE),
        ):
            async with self.send_lock:
                await (self._tls.aclose() if self._tls is not None else self._tcp.send_eof())
            await self._eof.wait()
        self.abort()


_GONE = (trio.BrokenResourceError, trio.ClosedResourceError)
