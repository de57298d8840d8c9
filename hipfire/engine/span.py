"""Bounds a span of an answer: sees each token that is chosen and says which one follows. Knows ids only."""

from collections import deque

from hipfire.wire.messages import SpanCap

# A span opens at the beginning of an answer: a few tokens of white space may come before it.
_MAX_LEAD = 4


class CappedSpan:
    """State of one answer's span."""

    def __init__(self, cap: SpanCap) -> None:
        self._cap = cap
        self._is_open = not cap.open_ids
        self._is_over = False
        self._n_inside = 0
        self._forced: deque[int] = deque()
        self._seen: list[int] = []

    def next(self, chosen: int) -> int:
        """The token that follows: `chosen`, or the one that is forced in its place."""
        if self._forced:
            return self._forced.popleft()
        if self._is_over:
            return chosen
        if self._is_open and self._n_inside == self._cap.max_tokens and self._cap.close_ids != (chosen,):
            self._is_over = True
            self._forced.extend(self._cap.forced_ids)
            return self._forced.popleft()
        self._see(chosen)
        return chosen

    def _see(self, token: int) -> None:
        self._seen.append(token)
        if self._is_open:
            self._n_inside += 1
            self._is_over = self._ends_with(self._cap.close_ids)
        elif self._ends_with(self._cap.open_ids):
            self._is_open = True
            self._seen.clear()
        else:
            self._is_over = len(self._seen) >= len(self._cap.open_ids) + _MAX_LEAD

    def _ends_with(self, ids: tuple[int, ...]) -> bool:
        return tuple(self._seen[-len(ids) :]) == ids
