"""Ends a text at the first of some stop strings. Knows no tokens."""

from collections.abc import Sequence


class StopMatcher:
    """Passes text on until a stop string appears in it; the stop string and all after it are dropped.

    The first match is the one that is complete first; of those complete at the same place, the longest. However the
    text is cut into pieces, what comes out is the same, and no more is held back than may yet be part of a match.
    `matched` tells whether a stop string has appeared.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if "" in stops:
            raise ValueError("an empty stop string would match everywhere")
        self.matched = False
        self._stops = tuple(stops)
        self._beginnings = frozenset(stop[:n] for stop in stops for n in range(1, len(stop)))
        self._longest_beginning = max(map(len, self._beginnings), default=0)
        self._held = ""

    def feed(self, text: str) -> str:
        """What of the text so far is now certain to come before any match."""
        if self.matched:
            return ""
        text = self._held + text
        match = self._first_match(text)
        if match is not None:
            self.matched = True
            self._held = ""
            return text[:match]
        cut = self._possible_match(text)
        self._held = text[cut:]
        return text[:cut]

    def close(self) -> str:
        """What was held back, since no more text can complete a match."""
        held, self._held = self._held, ""
        return held

    def _first_match(self, text: str) -> int | None:
        """Where the first match in `text` starts."""
        found = [(start + len(stop), start) for stop in self._stops if (start := text.find(stop)) >= 0]
        return min(found)[1] if found else None

    def _possible_match(self, text: str) -> int:
        """Where the longest end of `text` starts that may be the beginning of a stop string."""
        for start in range(max(0, len(text) - self._longest_beginning), len(text)):
            if text[start:] in self._beginnings:
                return start
        return len(text)
