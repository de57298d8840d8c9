"""What a model says, taken apart: its reasoning, its answer, its tool calls. Knows no tokens and no HTTP.

Whatever the family (`dialects`), text comes in pieces of any size, and the events are the same however it was cut:
only how the text of an answer or of reasoning is spread over events depends on it. A call comes with the end of the
output, since only then is it certain that what looks like its end is no part of an argument.
"""

from collections.abc import Iterator, Mapping
from typing import Protocol

import attrs


@attrs.frozen
class Text:
    """More of the answer. `start` is the place of its first character in all that was fed."""

    text: str
    start: int


@attrs.frozen
class Reasoning:
    """More of the reasoning."""

    text: str
    start: int


@attrs.frozen
class ToolCall:
    """A whole call of a tool that the request declared. `arguments` are JSON values."""

    name: str
    arguments: Mapping[str, object]


MarkupEvent = Text | Reasoning | ToolCall


class Markup(Protocol):
    """Takes one output apart."""

    def feed(self, piece: str) -> Iterator[MarkupEvent]:
        """What is settled by this piece."""
        ...

    def close(self, *, truncated: bool) -> Iterator[MarkupEvent]:
        """The rest. `truncated`: the output was cut off, so a call without an end is dropped, not shown as text."""
        ...


class PlainMarkup:
    """All is answer."""

    def __init__(self) -> None:
        self._n_fed = 0

    def feed(self, piece: str) -> Iterator[MarkupEvent]:
        if piece:
            yield Text(piece, self._n_fed)
            self._n_fed += len(piece)

    def close(self, *, truncated: bool) -> Iterator[MarkupEvent]:  # noqa: ARG002
        yield from ()


def n_held(text: str, literals: tuple[str, ...]) -> int:
    """How many characters at the end of `text` may yet become one of the literals: the longest such end."""
    longest = max(map(len, literals), default=1) - 1
    for n in range(min(longest, len(text)), 0, -1):
        end = text[-n:]
        if any(literal.startswith(end) for literal in literals):
            return n
    return 0
