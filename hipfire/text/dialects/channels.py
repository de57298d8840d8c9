"""Output as messages with a header each, which says whom a message is for: the reader, the model itself, or a tool.

What headers and calls look like is a family's own form of it. Knows no family.
"""

import re
from collections.abc import Callable, Iterator
from typing import Protocol

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.syntax import NotACall, Tool, Tools
from hipfire.text.markup import MarkupEvent, Reasoning, Text, ToolCall, n_held

_BETWEEN = "\n\n"


@attrs.frozen
class Address:
    """Whom a message is for: a tool, or with an empty `tool` the model itself or the reader."""

    tool: str
    is_reasoning: bool


class Channels(Protocol):
    """One form of messages."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The tokens that it is written with. In some vocabularies they are control tokens, without a text."""
        ...

    @property
    def header_begins(self) -> tuple[str, ...]:
        """What a header may begin with. Output that begins otherwise is all answer."""
        ...

    @property
    def header_end(self) -> str:
        """What stands between header and body."""
        ...

    @property
    def start(self) -> str:
        """What a header begins with, save the first."""
        ...

    @property
    def ends(self) -> tuple[str, ...]:
        """What ends a body."""
        ...

    def address(self, header: str) -> Address: ...

    def is_whole(self, body: str) -> bool:
        """Whether a call can end here, rather than within an argument."""
        ...

    def read(self, body: str, tool: str, tools: Tools) -> ToolCall:
        """The call in a message to a tool. Raises NotACall."""
        ...

    def reasoning_rule(self, rules: Rules) -> str:
        """A rule for a message to the model itself, with the beginning of the next one."""
        ...

    def answer_rule(self, rules: Rules, answer: str) -> str:
        """A rule for a message to the reader that says `answer`."""
        ...

    def call_rule(self, rules: Rules, tool: Tool) -> str:
        """A rule for a message to a tool. Raises CannotForce."""
        ...


class ChannelMarkup:
    """Without a header, all is answer."""

    def __init__(self, channels: Channels, *, tools: Tools) -> None:
        self._channels = channels
        self._end = re.compile("|".join(map(re.escape, channels.ends)))
        self._tools = tools
        self._step: Callable[[bool], Iterator[MarkupEvent]] = self._header
        self._text = ""
        self._start = 0
        self._tool = ""
        self._is_reasoning = False
        # What was shown of each kind of text, which decides what stands between it and the next of its kind.
        self._shown: set[bool] = set()
        self._is_fresh = True
        self._is_truncated = False
        self._calls: list[ToolCall] = []

    def feed(self, piece: str) -> Iterator[MarkupEvent]:
        self._text += piece
        yield from self._run(final=False)

    def close(self, *, truncated: bool) -> Iterator[MarkupEvent]:
        self._is_truncated = truncated
        yield from self._run(final=True)
        if self._step == self._call and (self._text or not truncated):
            yield from self._end_call(self._text, is_whole=not truncated)
        yield from self._calls

    def _run(self, *, final: bool) -> Iterator[MarkupEvent]:
        while self._text:
            before = (self._step, self._start)
            yield from self._step(final)
            if before == (self._step, self._start):
                return

    def _begins_header(self) -> bool:
        text = self._text.lstrip()
        return any(text.startswith(begin) or begin.startswith(text) for begin in self._channels.header_begins)

    def _header(self, final: bool) -> Iterator[MarkupEvent]:
        yield from ()
        end = self._text.find(self._channels.header_end)
        if self._begins_header() and end >= 0:
            header = self._text[:end]
            self._drop(end + len(self._channels.header_end))
            self._begin_body(self._channels.address(header))
        elif self._begins_header() and final and (self._is_truncated or self._begins_message()):
            # The header of a message of which nothing came.
            self._drop(len(self._text))
        elif not self._begins_header() or final:
            self._begin_body(Address("", is_reasoning=False))

    def _begins_message(self) -> bool:
        return self._text.lstrip().startswith(self._channels.start)

    def _begin_body(self, address: Address) -> None:
        self._tool, self._is_reasoning, self._is_fresh = address.tool, address.is_reasoning, True
        self._step = self._call if address.tool else self._body

    def _body(self, final: bool) -> Iterator[MarkupEvent]:
        end, n_marker = self._end_of_message()
        if n_marker == 0 and not final:
            end -= n_held(self._text, self._channels.ends)
        if end:
            yield from self._say(self._text[:end])
        self._drop(end)
        if n_marker:
            self._end_message(n_marker)

    def _call(self, final: bool) -> Iterator[MarkupEvent]:
        """A marker within a string of the arguments ends no message."""
        ends = [match.span() for match in self._end.finditer(self._text)]
        whole = next((span for span in ends if self._channels.is_whole(self._text[: span[0]])), None)
        if whole is None and final and ends and not self._channels.is_whole(self._text):
            whole = ends[0]
        if whole is not None:
            yield from self._end_call(self._text[: whole[0]], is_whole=True)
            self._drop(whole[0])
            self._end_message(whole[1] - whole[0])

    def _end_call(self, body: str, *, is_whole: bool) -> Iterator[MarkupEvent]:
        """A call that cannot be read is shown, unless it was cut off."""
        try:
            self._calls.append(self._channels.read(body, self._tool, self._tools))
        except NotACall:
            if is_whole:
                self._is_fresh = True
                yield from self._say(body)

    def _say(self, text: str) -> Iterator[MarkupEvent]:
        kind = Reasoning if self._is_reasoning else Text
        if self._is_fresh and self._is_reasoning in self._shown:
            yield kind(_BETWEEN, self._start)
        self._is_fresh = False
        self._shown.add(self._is_reasoning)
        yield kind(text, self._start)

    def _end_of_message(self) -> tuple[int, int]:
        """Where the body ends, and the length of the marker there: 0 where none has come."""
        found = [(place, len(end)) for end in self._channels.ends if (place := self._text.find(end)) >= 0]
        return min(found, default=(len(self._text), 0))

    def _end_message(self, n_marker: int) -> None:
        if not self._text.startswith(self._channels.start):
            self._drop(n_marker)
        self._step = self._header

    def _drop(self, n: int) -> None:
        self._text = self._text[n:]
        self._start += n
