"""A streamed chat as a body of server-sent events. Knows no route."""

from types import TracebackType
from typing import Self

import trio
from quart.wrappers.response import ResponseBody

from hipfire.server.chunks import DONE, KEEPALIVE, ChunkEncoder, error_frame
from hipfire.server.completion import extension_document, usage_document
from hipfire.server.problems import error_body
from hipfire.service.chat import Chat
from hipfire.service.events import ChatEvent, Completed, ReasoningDelta, TextDelta, ToolCalls
from hipfire.service.generation import Generation

SILENCE_S = 15.0
# Frames that are sent at once when the client is behind.
_MAX_BATCH = 64


class EventStream(ResponseBody):
    """The frames of a chat. Iterating raises nothing but cancellation: an error is the last frame but one.

    `run` must be running, in a task that ends with the request: starting the chat takes a turn in the queue and maybe
    a load, which keepalives must not disturb.
    """

    def __init__(self, chat: Chat, encoder: ChunkEncoder, *, include_usage: bool) -> None:
        self._chat = chat
        self._encoder = encoder
        self._include_usage = include_usage
        self._begun = trio.Event()
        self._generation: Generation | None = None
        self._failure: Exception | None = None
        self._first: ChatEvent | None = None
        self._sends_role = True
        self._is_done = False

    async def run(self) -> None:
        """Start the chat, and close it when cancelled."""
        with self._chat:
            try:
                self._generation = await self._chat.start()
            except Exception as error:  # noqa: BLE001
                # Not handled here, only handed over: to the task that can tell the client.
                self._failure = error
                return
            finally:
                self._begun.set()
            await trio.sleep_forever()

    async def wait_for_first(self) -> None:
        """Wait for the first event, but not too long. Raises the error of a chat that failed until then."""
        with trio.move_on_after(SILENCE_S):
            generation = await self._started()
            self._first = await anext(generation)

    async def _started(self) -> Generation:
        await self._begun.wait()
        if self._failure is not None:
            raise self._failure
        assert self._generation is not None
        return self._generation

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The chat ends with the task that runs it.
        pass

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._is_done:
            raise StopAsyncIteration
        if self._sends_role:
            self._sends_role = False
            return self._encoder.role() + (self._frame(self._first) if self._first is not None else b"")
        frames: list[bytes] = []
        with trio.move_on_after(SILENCE_S):
            try:
                await self._collect(frames)
            except Exception as error:  # noqa: BLE001
                # The status line is gone; this is the only way left to tell the client.
                self._is_done = True
                _, body = error_body(error)
                frames.append(error_frame(body) + DONE)
        return b"".join(frames) or KEEPALIVE

    async def _collect(self, frames: list[bytes]) -> None:
        """The frames of the next event and of those right behind it."""
        generation = self._generation or await self._started()
        event: ChatEvent | None = await anext(generation)
        while event is not None:
            frames.append(self._frame(event))
            event = generation.receive_nowait() if len(frames) < _MAX_BATCH else None

    def _frame(self, event: ChatEvent) -> bytes:
        match event:
            case TextDelta():
                return self._encoder.text(event)
            case ReasoningDelta():
                return self._encoder.reasoning(event)
            case ToolCalls():
                return self._encoder.tool_calls(event)
            case Completed():
                return self._last_frames(event)

    def _last_frames(self, completed: Completed) -> bytes:
        self._is_done = True
        frames = self._encoder.finish(completed, extension_document(completed))
        if self._include_usage:
            frames += self._encoder.usage(usage_document(completed))
        return frames + DONE
