"""A streamed chat as a body of server-sent events. Knows no route.

The chat runs in a task of the request's own nursery, so that waiting for its next event can time out (for a
keepalive) without disturbing it, and so that a slow reader does not hold up the engine.
"""

import math
from collections.abc import AsyncGenerator
from contextlib import aclosing
from types import TracebackType
from typing import Self

import trio
from quart.wrappers.response import ResponseBody

from hipfire.server.chunks import DONE, KEEPALIVE, ChunkEncoder, error_frame
from hipfire.server.completion import extension_document, usage_document
from hipfire.server.problems import error_body
from hipfire.service.events import ChatEvent, Completed, Started, TextDelta

SILENCE_S = 15.0
# Frames that are sent at once when a reader is behind.
_MAX_BATCH = 64

Events = trio.MemoryReceiveChannel[ChatEvent | Exception]


def start(nursery: trio.Nursery, chat: AsyncGenerator[ChatEvent, None]) -> Events:
    """Run a chat; its events, or the error it ended in, can be received."""
    send, receive = trio.open_memory_channel[ChatEvent | Exception](math.inf)
    nursery.start_soon(_run, chat, send)
    return receive


async def _run(chat: AsyncGenerator[ChatEvent, None], events: trio.MemorySendChannel[ChatEvent | Exception]) -> None:
    with events:
        try:
            async with aclosing(chat):
                async for event in chat:
                    events.send_nowait(event)
        except Exception as error:  # noqa: BLE001
            # Not handled here, only handed over: to the task that can still tell the client.
            events.send_nowait(error)


class EventStream(ResponseBody):
    """The frames of a chat. Iterating raises nothing but cancellation: an error is the last frame but one."""

    def __init__(
        self, events: Events, encoder: ChunkEncoder, *, first: ChatEvent | Exception | None, include_usage: bool
    ) -> None:
        self._events = events
        self._encoder = encoder
        self._first = first
        self._include_usage = include_usage
        self._has_begun = False
        self._is_done = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The nursery that the chat runs in ends it.
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if not self._has_begun:
            self._has_begun = True
            first, self._first = self._first, None
            return self._encoder.role() + (self._frames(first) if first is not None else b"")
        if self._is_done:
            raise StopAsyncIteration
        with trio.move_on_after(SILENCE_S):
            return self._batch(await self._events.receive())
        return KEEPALIVE

    def _batch(self, event: ChatEvent | Exception) -> bytes:
        """The frames of an event and of those behind it."""
        frames = [self._frames(event)]
        while not self._is_done and len(frames) < _MAX_BATCH:
            try:
                frames.append(self._frames(self._events.receive_nowait()))
            except trio.WouldBlock:
                break
        return b"".join(frames)

    def _frames(self, event: ChatEvent | Exception) -> bytes:
        match event:
            case TextDelta():
                return self._encoder.text(event)
            case Completed():
                self._is_done = True
                return self._last_frames(event)
            case Started():
                return b""
        self._is_done = True
        _, body = error_body(event)
        return error_frame(body) + DONE

    def _last_frames(self, completed: Completed) -> bytes:
        frames = self._encoder.finish(completed, extension_document(completed))
        if self._include_usage:
            frames += self._encoder.usage(usage_document(completed))
        return frames + DONE
