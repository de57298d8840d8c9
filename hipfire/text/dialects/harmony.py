"""Output as messages with a header each, as gpt-oss writes it (harmony).

    <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…

`analysis` is reasoning, `final` and what `commentary` says to nobody is the answer, and a message with a recipient
`to=functions.NAME`, in either part of the header, is a call. The prompt ends in `<|start|>assistant`.
"""

import re
from collections.abc import Callable, Iterator

from hipfire.text.dialects.syntax import NotACall, Tools
from hipfire.text.dialects.values import declared_call, read_json
from hipfire.text.markup import MarkupEvent, Reasoning, Text, ToolCall, n_held

MARKERS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
_MESSAGE = "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")
_HEADER_BEGINS = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "to=")
_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")
_END = re.compile("|".join(map(re.escape, _ENDS)))
_BETWEEN = "\n\n"


class HarmonyMarkup:
    """Without a header, all is answer."""

    def __init__(self, *, tools: Tools) -> None:
        self._tools = tools
        self._step: Callable[[bool], Iterator[MarkupEvent]] = self._header
        self._text = ""
        self._start = 0
        self._recipient = ""
        self._is_reasoning = False
        # What was shown of each kind of text, which decides what stands between it and the next of its kind.
        self._shown: set[bool] = set()
        self._is_fresh = True
        self._calls: list[ToolCall] = []

    def feed(self, piece: str) -> Iterator[MarkupEvent]:
        self._text += piece
        yield from self._run(final=False)

    def close(self, *, truncated: bool) -> Iterator[MarkupEvent]:
        if self._step == self._header and truncated and self._begins_header():
            # The header of a message of which nothing came.
            self._text = ""
        yield from self._run(final=True)
        if self._step == self._call:
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
        return any(text.startswith(begin) or begin.startswith(text) for begin in _HEADER_BEGINS)

    def _header(self, final: bool) -> Iterator[MarkupEvent]:
        yield from ()
        end = self._text.find(_MESSAGE)
        if not self._begins_header() or (final and end < 0):
            self._begin_body(recipient="", is_reasoning=False)
        elif end >= 0:
            header = self._text[:end]
            channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
            self._drop(end + len(_MESSAGE))
            self._begin_body(
                recipient=recipient.group(1) if recipient else "",
                is_reasoning=channel is not None and channel.group(1) == "analysis",
            )

    def _begin_body(self, *, recipient: str, is_reasoning: bool) -> None:
        self._recipient, self._is_reasoning, self._is_fresh = recipient, is_reasoning, True
        self._step = self._call if recipient else self._body

    def _body(self, final: bool) -> Iterator[MarkupEvent]:
        end, n_marker = self._end_of_message()
        if n_marker == 0 and not final:
            end -= n_held(self._text, _ENDS)
        if end:
            yield from self._say(self._text[:end])
        self._drop(end)
        if n_marker:
            self._end_message(n_marker)

    def _call(self, final: bool) -> Iterator[MarkupEvent]:
        """A marker within a string of the arguments ends no message."""
        ends = [match.span() for match in _END.finditer(self._text)]
        whole = next((span for span in ends if _is_json(self._text[: span[0]])), None)
        if whole is None and final and ends and not _is_json(self._text):
            whole = ends[0]
        if whole is not None:
            yield from self._end_call(self._text[: whole[0]], is_whole=True)
            self._drop(whole[0])
            self._end_message(whole[1] - whole[0])

    def _end_call(self, body: str, *, is_whole: bool) -> Iterator[MarkupEvent]:
        """A call that cannot be read is shown, unless it was cut off."""
        try:
            arguments, _ = read_json(body or "{}")
            if not _is_json(body):
                raise NotACall("something else behind the arguments")
            self._calls.append(declared_call(self._tools, self._recipient, arguments))
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
        found = [(place, len(end)) for end in _ENDS if (place := self._text.find(end)) >= 0]
        return min(found, default=(len(self._text), 0))

    def _end_message(self, n_marker: int) -> None:
        if not self._text.startswith("<|start|>"):
            self._drop(n_marker)
        self._step = self._header

    def _drop(self, n: int) -> None:
        self._text = self._text[n:]
        self._start += n


def _is_json(body: str) -> bool:
    """Whether it is one value; nothing at all is an object without arguments."""
    try:
        _, end = read_json(body or "{}")
    except NotACall:
        return False
    return not body[end:].strip()
