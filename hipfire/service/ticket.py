"""A generation that an engine works on, as the one who asked for it sees it. Knows no text and no process."""

import math
from collections.abc import Callable

import trio

from hipfire.errors import HipfireError
from hipfire.wire.messages import Cancelled, Finished, Started, Token


class Ticket:
    """Iterate over it: Started, Tokens, then one Finished or Cancelled. A failure is raised, as the error it is.

    Whoever stops iterating before the end must call `cancel`.
    """

    def __init__(self, id_: str, *, post_cancel: Callable[[str], None]) -> None:
        self.id = id_
        self._post_cancel = post_cancel
        self._send, self._receive = trio.open_memory_channel[Started | Token | Finished | Cancelled | HipfireError](
            math.inf
        )
        self._cancelled = False
        self._ended = False
        self._at_end: list[Callable[[], None]] = []

    def cancel(self) -> None:
        """Tell the engine to stop. Synchronous and idempotent; does nothing after the end."""
        if not self._ended and not self._cancelled:
            self._cancelled = True
            self._post_cancel(self.id)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call back when the engine is through with this generation, however it ended; now, if it is already."""
        if self._ended:
            callback()
        else:
            self._at_end.append(callback)

    def deliver(self, message: Started | Token) -> None:
        """For the link: one more message before the end. After a cancellation nobody reads it."""
        if not self._ended and not self._cancelled:
            self._send.send_nowait(message)

    def end(self, outcome: Finished | Cancelled | HipfireError) -> None:
        """For the link: the one terminal event."""
        if self._ended:
            return
        self._ended = True
        self._send.send_nowait(outcome)
        self._send.close()
        while self._at_end:
            self._at_end.pop()()

    def __aiter__(self) -> "Ticket":
        return self

    async def __anext__(self) -> Started | Token | Finished | Cancelled:
        try:
            return _raised(await self._receive.receive())
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    def receive_nowait(self) -> Started | Token | Finished | Cancelled | None:
        """What there is already, if anything."""
        try:
            return _raised(self._receive.receive_nowait())
        except (trio.WouldBlock, trio.EndOfChannel):
            return None


def _raised(event: Started | Token | Finished | Cancelled | HipfireError) -> Started | Token | Finished | Cancelled:
    if isinstance(event, HipfireError):
        raise event
    return event
