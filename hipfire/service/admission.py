"""Who may generate now: a bounded first-come-first-served queue in front of a few running places.

Knows nothing of what is done in a place.
"""

import math
from collections import OrderedDict
from types import TracebackType
from typing import Self

import trio

from hipfire.errors import EngineUnavailable, ServerBusy

_MAX_RETRY_AFTER_S = 60
# Weight of the newest request in the mean duration.
_NEWEST = 0.25


class Admission:
    """`max_queue` 0 sets no bound, `queue_timeout_s` 0 waits for ever."""

    def __init__(self, *, max_concurrent: int, max_queue: int, queue_timeout_s: float) -> None:
        self._max_concurrent = max_concurrent
        self._max_queue = max_queue or math.inf
        self._queue_timeout_s = queue_timeout_s or math.inf
        self._waiting: OrderedDict[Place, None] = OrderedDict()
        self._running: set[Place] = set()
        self._mean_s = 1.0
        self._is_closed = False

    @property
    def n_waiting(self) -> int:
        return len(self._waiting)

    @property
    def n_running(self) -> int:
        return len(self._running)

    def enter(self) -> "Place":
        """Take the last place in the queue, to be used as a context manager.

        Raises ServerBusy when it is full, EngineUnavailable when it is closed.
        """
        if self._is_closed:
            raise _closed()
        place = Place(self, timeout_s=self._queue_timeout_s)
        if len(self._running) < self._max_concurrent:
            self._grant(place)
        elif len(self._waiting) < self._max_queue:
            self._waiting[place] = None
        else:
            raise ServerBusy(f"all {self._max_queue} places in the queue are taken", retry_after_s=self.retry_after_s())
        return place

    def retry_after_s(self) -> int:
        """When somebody turned away may find a place, going by how long requests took of late."""
        n_rounds = (len(self._waiting) + 1) / self._max_concurrent
        return min(_MAX_RETRY_AFTER_S, max(1, math.ceil(n_rounds * self._mean_s)))

    def close(self) -> None:
        """Turn everybody away who has no turn yet, with EngineUnavailable."""
        self._is_closed = True
        while self._waiting:
            place, _ = self._waiting.popitem()
            place.is_refused = True
            place.granted.set()

    def _grant(self, place: "Place") -> None:
        self._running.add(place)
        place.granted_at = trio.current_time()
        place.granted.set()

    def leave(self, place: "Place") -> None:
        """Give a place up, whether it waits or runs. Idempotent, synchronous; the next in the queue moves up."""
        self._waiting.pop(place, None)
        if place not in self._running:
            return
        self._running.remove(place)
        self._mean_s += _NEWEST * (trio.current_time() - place.granted_at - self._mean_s)
        if self._waiting:
            following, _ = self._waiting.popitem(last=False)
            self._grant(following)


class Place:
    """One request's place. Leaving the `with` block gives it up, waiting or running."""

    def __init__(self, admission: Admission, *, timeout_s: float) -> None:
        self._admission = admission
        self._timeout_s = timeout_s
        self.granted = trio.Event()
        self.granted_at = math.nan
        self.is_refused = False

    async def turn(self) -> None:
        """Wait until this request may run. Raises ServerBusy after the timeout, EngineUnavailable at shutdown."""
        with trio.move_on_after(self._timeout_s):
            await self.granted.wait()
        if self.is_refused:
            raise _closed()
        if not self.granted.is_set():
            raise ServerBusy(f"waited {self._timeout_s:g} s for a turn", retry_after_s=self._admission.retry_after_s())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admission.leave(self)


def _closed() -> EngineUnavailable:
    return EngineUnavailable("the server is shutting down")
