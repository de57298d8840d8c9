"""Calls in tags around values that are written as they are, with nothing escaped: where a call and a value end.

A value may hold all of the tags itself. So a call ends with the last closing tag before another call begins, and a
value with the first one behind which another parameter of the tool begins, or else the last. Knows no family's tags.
"""

import re
from collections.abc import Callable

import attrs

from hipfire.text.dialects.syntax import NotACall, Tool, Tools, Unterminated
from hipfire.text.markup import ToolCall

ReadValue = Callable[[re.Match[str], str, Tool], object]
"""The value of a parameter, from the match of its opening tag and what stands behind that."""


@attrs.frozen(kw_only=True)
class CallTags:
    """`head` begins a call, with the name of its function as the first group, and `tail` ends it.

    `parameter` begins a value, with the parameter's name as the first group, and `value_end` ends it.
    """

    head: re.Pattern[str]
    tail: re.Pattern[str]
    parameter: re.Pattern[str]
    value_end: re.Pattern[str]

    def read(self, text: str, start: int, tools: Tools, read_value: ReadValue) -> tuple[ToolCall, int]:
        """The call at `start`, and the place behind it. Raises NotACall and Unterminated."""
        head = self.head.match(text, start)
        tool = tools.get(head.group(1)) if head is not None else None
        if head is None or tool is None:
            raise NotACall("no call of a declared function")
        body_end, end = self._call_end(text, start, tools)
        return ToolCall(tool.name, self.arguments(text[head.end() : body_end], tool, read_value)), end

    def arguments(self, body: str, tool: Tool, read_value: ReadValue) -> dict[str, object]:
        """The arguments in what stands between head and tail. Raises NotACall."""
        arguments: dict[str, object] = {}
        place = 0
        while body[place:].strip():
            head = self.parameter.match(body, place)
            if head is None:
                raise NotACall("something else than a parameter")
            name = head.group(1)
            value_end, place = self._value_end(body, head.end(), {*arguments, name}, tool)
            arguments[name] = read_value(head, body[head.end() : value_end], tool)
        return arguments

    def _call_end(self, text: str, start: int, tools: Tools) -> tuple[int, int]:
        """Where the tail of the call at `start` begins and ends.

        Where there are fewer tails than heads before the next head, what opened there is a call in a value, and the
        search goes on behind it. Raises Unterminated.
        """
        opened = [match.start() for match in self.head.finditer(text, start) if match.group(1) in tools]
        tails = list(self.tail.finditer(text, start))
        if not tails:
            raise Unterminated
        for n_opened, until in enumerate([*opened[1:], len(text)], start=1):
            before = [tail for tail in tails if tail.end() <= until]
            if len(before) >= n_opened:
                return before[-1].span()
        return tails[-1].span()

    def _value_end(self, body: str, start: int, seen: set[str], tool: Tool) -> tuple[int, int]:
        """Where the closing tag of a value begins and ends."""
        last = None
        for last in self.value_end.finditer(body, start):
            following = self.parameter.match(body, last.end())
            if following is not None and following.group(1) not in seen and _takes(tool, following.group(1)):
                return last.span()
        if last is None or body[last.end() :].strip():
            raise NotACall("a value does not end")
        return last.span()


def _takes(tool: Tool, name: str) -> bool:
    return name in tool.properties or not tool.properties or bool(tool.parameters.get("additionalProperties"))
