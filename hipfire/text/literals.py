"""Finds any of a set of fixed texts in a text. Knows nothing of what the texts mean."""

import re
from collections.abc import Iterator, Mapping


class LiteralMatcher:
    """Splits text at the occurrences of some literals: the leftmost first, the longest of those that start there.

    `literals` maps each non-empty text to the id that stands for it.
    """

    def __init__(self, literals: Mapping[str, int]) -> None:
        self._literals = literals
        lengths: dict[str, set[int]] = {}
        for literal in literals:
            lengths.setdefault(literal[0], set()).add(len(literal))
        self._lengths = {first: sorted(found, reverse=True) for first, found in lengths.items()}
        firsts = "".join(re.escape(first) for first in lengths)
        # With no literals there is nothing to find: a pattern that matches nowhere.
        self._candidate = re.compile(f"[{firsts}]" if firsts else r"(?!)")

    def split(self, text: str) -> Iterator[str | int]:
        """The text in order: ids for the literals, strings (never empty) for what lies between them."""
        start = position = 0
        while candidate := self._candidate.search(text, position):
            position = candidate.start()
            for length in self._lengths[text[position]]:
                found = self._literals.get(text[position : position + length])
                if found is not None:
                    if position > start:
                        yield text[start:position]
                    yield found
                    start = position = position + length
                    break
            else:
                position += 1
        if start < len(text):
            yield text[start:]
