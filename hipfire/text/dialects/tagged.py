"""Output whose reasoning stands between two tags, at its start, and whose calls begin with a marker in the answer.

Most families are of this kind. Knows no family and no syntax of calls beyond how one begins.
"""

from collections.abc import Callable, Iterator

import attrs

from hipfire.text.dialects.syntax import Block, CallSyntax, NotACall, Tools, Unterminated
from hipfire.text.markup import MarkupEvent, Reasoning, Text, n_held


@attrs.frozen(kw_only=True)
class Tags:
    """What stands around reasoning. `ignored` are tags around the answer, which are dropped: one that
    opens, one that closes, and so on.

    `parts` are tokens that a tag is made of, where it is not one.
    """

    opener: str = "<think>"
    closer: str = "</think>"
    ignored: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()


_Step = Callable[[bool], Iterator[MarkupEvent]]


class TaggedMarkup:
    """`tags` None: no reasoning. `syntax` None, or no tools: no calls."""

    def __init__(self, *, tags: Tags | None, begins_inside: bool, syntax: CallSyntax | None, tools: Tools) -> None:
        self._tags = tags or Tags()
        self._syntax = syntax
        self._tools = tools
        self._openers = syntax.openers(tools) if syntax is not None and tools else ()
        ignored = tags.ignored if tags is not None else ()
        self._literals = (*dict.fromkeys(opener.literal for opener in self._openers), *ignored)
        begin = self._reason if begins_inside else self._begin if tags is not None else self._answer
        self._step: _Step = begin
        # What was fed and not passed on, and the place of its first character.
        self._text = ""
        self._start = 0
        self._is_blank = True
        self._is_truncated = False

    def feed(self, piece: str) -> Iterator[MarkupEvent]:
        self._text += piece
        yield from self._run(final=False)

    def close(self, *, truncated: bool) -> Iterator[MarkupEvent]:
        self._is_truncated = truncated
        yield from self._run(final=True)
        if self._step == self._wait_for_end:
            yield from self._calls()

    def _run(self, *, final: bool) -> Iterator[MarkupEvent]:
        """Take steps until one leaves things as they are."""
        while True:
            step = self._step
            yield from step(final)
            if self._step == step:
                return

    def _begin(self, final: bool) -> Iterator[MarkupEvent]:
        """The opener may come, after white space."""
        text, opener = self._text.lstrip(), self._tags.opener
        if text.startswith(opener):
            self._drop(len(self._text) - len(text) + len(opener))
            self._step = self._reason
        elif final or not opener.startswith(text):
            self._step = self._answer
        yield from ()

    def _reason(self, final: bool) -> Iterator[MarkupEvent]:
        if self._is_blank:
            self._drop(len(self._text) - len(self._text.lstrip()))
        closer = self._text.find(self._tags.closer)
        end = closer if closer >= 0 else len(self._text) - (0 if final else n_held(self._text, (self._tags.closer,)))
        text = self._text[:end].rstrip()
        if text:
            self._is_blank = False
            yield Reasoning(text, self._start)
            self._drop(len(text))
        if closer >= 0:
            self._drop(self._text.find(self._tags.closer) + len(self._tags.closer))
            self._is_blank = True
            self._step = self._skip_newlines

    def _skip_newlines(self, final: bool) -> Iterator[MarkupEvent]:
        self._drop(len(self._text) - len(self._text.lstrip("\n")))
        if self._text or final:
            self._step = self._answer
        yield from ()

    def _answer(self, final: bool) -> Iterator[MarkupEvent]:
        """Text, until something opens a call."""
        begin = 0
        while (found := self._next_literal(begin)) is not None:
            place, literal = found
            if literal in self._tags.ignored:
                yield from self._show(place)
                self._drop(len(literal))
                begin = 0
                continue
            opens = self._opens(place)
            if opens:
                yield from self._show(len(self._text[:place].rstrip()))
                self._step = self._wait_for_end
                return
            if opens is None and (not final or self._is_truncated):
                yield from self._show(len(self._text[:place].rstrip()))
                return
            begin = place + 1
        end = len(self._text)
        if not final and self._literals:
            end -= n_held(self._text[begin:], self._literals)
            # White space in front of a call is no part of the answer.
            end = len(self._text[:end].rstrip())
        yield from self._show(end)

    def _wait_for_end(self, _final: bool) -> Iterator[MarkupEvent]:
        """All that follows is read when there is no more of it."""
        yield from ()

    def _next_literal(self, begin: int) -> tuple[int, str] | None:
        """The first literal from `begin` on, the longest of those at one place."""
        found = [(place, literal) for literal in self._literals if (place := self._text.find(literal, begin)) >= 0]
        return min(found, key=lambda item: (item[0], -len(item[1])), default=None)

    def _opens(self, place: int) -> bool | None:
        """Whether a call opens at a place where a literal is."""
        text = self._text[place:]
        is_first = self._is_blank and not self._text[:place].strip()
        answers = [
            opener.matches(text)
            for opener in self._openers
            if text.startswith(opener.literal) and (is_first or not opener.at_start)
        ]
        # A longer literal may be on its way.
        if any(len(text) < len(o.literal) and o.literal.startswith(text) for o in self._openers):
            answers.append(None)
        if True in answers:
            return True
        return None if None in answers else False

    def _show(self, end: int) -> Iterator[MarkupEvent]:
        if end > 0:
            self._is_blank = self._is_blank and not self._text[:end].strip()
            yield Text(self._text[:end], self._start)
            self._drop(end)

    def _drop(self, n: int) -> None:
        self._text = self._text[n:]
        self._start += n

    def _calls(self) -> Iterator[MarkupEvent]:
        """The calls from here to the end, and what is between them where it is more than white space."""
        text, shown, n_calls, begin = self._text, 0, 0, 0
        end = len(text)
        while (place := self._next_opener(begin)) is not None:
            try:
                block = self._read(place)
            except NotACall:
                begin = place + 1
            except Unterminated:
                begin = place + 1
                if self._is_truncated:
                    end = place
                    break
            else:
                yield from self._between(shown, place)
                yield from block.calls
                n_calls += len(block.calls)
                shown = begin = block.end
        if n_calls or end < len(text):
            yield from self._between(shown, end)
        else:
            yield Text(text, self._start)

    def _read(self, place: int) -> Block:
        assert self._syntax is not None
        return self._syntax.read(self._text, place, self._tools)

    def _next_opener(self, begin: int) -> int | None:
        while (found := self._next_literal(begin)) is not None:
            if self._opens(found[0]):
                return found[0]
            begin = found[0] + 1
        return None

    def _between(self, begin: int, end: int) -> Iterator[MarkupEvent]:
        """What stands between two calls, before the first or behind the last."""
        text = self._text[begin:end]
        if text.strip():
            yield Text(text.rstrip(), self._start + begin)
