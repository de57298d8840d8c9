"""An answer on its way from the engine, as events. A timeout around waiting for the next one loses none.

Knows nothing of the queue and of loading; it begins when the engine has the prompt.
"""

from collections import deque
from typing import Self

from hipfire.errors import HipfireError
from hipfire.service.answer import Answer
from hipfire.service.events import ChatEvent
from hipfire.service.stats import Tally
from hipfire.service.ticket import Ticket
from hipfire.wire.messages import Cancelled, Finished, Started, Token


class Generation:
    """Iterate over it: deltas, then Completed. Raises HipfireError's subclasses."""

    def __init__(self, ticket: Ticket, answer: Answer, tally: Tally) -> None:
        self._ticket = ticket
        self._answer = answer
        self._tally = tally
        self._events: deque[ChatEvent] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ChatEvent:
        try:
            while not self._events:
                if self._answer.completed is not None:
                    raise StopAsyncIteration
                self._take(await anext(self._ticket))
        except HipfireError:
            self._tally.failed()
            raise
        return self._events.popleft()

    def receive_nowait(self) -> ChatEvent | None:
        """The next event, if it is there already."""
        try:
            # After a stop string more tokens may be there already; the answer is over all the same.
            while not self._events and self._answer.completed is None:
                message = self._ticket.receive_nowait()
                if message is None:
                    break
                self._take(message)
        except HipfireError:
            self._tally.failed()
            raise
        return self._events.popleft() if self._events else None

    def close(self) -> None:
        """Stop the engine where it has not ended. Idempotent."""
        self._ticket.cancel()

    def _take(self, message: Started | Token | Finished | Cancelled) -> None:
        self._events.extend(self._answer.take(message))
        if self._answer.completed is not None:
            # After a stop string the engine would go on.
            self._ticket.cancel()
            self._tally.served(self._answer.completed)
