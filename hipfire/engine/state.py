"""Which slots of the device's state are taken. A slot's next owner writes every position before it reads it.

Knows no device: the state itself is there.
"""

import heapq


class Slots:
    """The numbers 0..n-1, each taken by one sequence at a time; the lowest free one goes first."""

    def __init__(self, n: int) -> None:
        self._free = list(range(n))

    def take(self) -> int | None:
        """A free slot; None when there is none."""
        return heapq.heappop(self._free) if self._free else None

    def release(self, slot: int) -> None:
        heapq.heappush(self._free, slot)
