"""Cuts Markdown that is still being written into blocks that are finished and the rest. Knows no terminal.

By CommonMark's way to read blocks a line can change the last block above it (a row of dashes makes a paragraph a
heading, say) and none before that one. So all blocks but the last are finished, as far as the lines are whole.
"""

import itertools

from markdown_it import MarkdownIt
from markdown_it.token import Token


def parser() -> MarkdownIt:
    """A parser of what models write: CommonMark with tables and strikethrough. HTML is text."""
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class Blocks:
    """Takes pieces of Markdown; `rest` is what no finished block has."""

    def __init__(self) -> None:
        self.rest = ""
        self._parser = parser()

    def feed(self, piece: str) -> list[str]:
        """The blocks that are finished now. What they all have, and `rest`, is what was fed."""
        self.rest += piece
        if "\n" not in piece:
            return []
        whole, _, _ = self.rest.rpartition("\n")
        starts = _starts(self._parser.parse(whole))
        if len(starts) < 2:
            return []
        lines = self.rest.split("\n")
        self.rest = "\n".join(lines[starts[-1] :])
        edges = [0, *starts[1:]]
        return ["\n".join(lines[begin:end]) + "\n" for begin, end in itertools.pairwise(edges)]

    def close(self) -> str:
        """The last block; empty where there is none."""
        rest, self.rest = self.rest, ""
        return rest


def _starts(tokens: list[Token]) -> list[int]:
    """The first line of each block of the top level."""
    return [token.map[0] for token in tokens if token.level == 0 and token.nesting >= 0 and token.map is not None]
