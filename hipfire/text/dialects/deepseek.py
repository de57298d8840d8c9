"""Calls as DeepSeek V3 and R1 write them.

V3.1: `<｜tool▁call▁begin｜>f<｜tool▁sep｜>{…}<｜tool▁call▁end｜>`. R1 and V3: `function<｜tool▁sep｜>f`, and behind
that the arguments in a fence of JSON. `<｜tool▁calls▁begin｜>` and `…end｜>` stand around all calls.
"""

import re
from typing import ClassVar

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import arguments_rule
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, read_json
from hipfire.text.markup import ToolCall

_CALLS_BEGIN, _CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
_BEGIN, _SEPARATOR, _END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
_HEAD = re.compile(rf"\s*{_BEGIN}\s*(?:function{_SEPARATOR}([^\n`]+)\s*```(?:json)?|([^\n｜]+){_SEPARATOR})")
_CLOSER = re.compile(rf"\s*(?:```)?\s*{_END}")
_LAST = re.compile(rf"\s*{_CALLS_END}")


@attrs.frozen(kw_only=True)
class DeepSeek:
    """`is_fenced`: calls are written as R1 and V3 write them."""

    is_fenced: bool = False

    markers: ClassVar[tuple[str, ...]] = (_CALLS_BEGIN, _CALLS_END, _BEGIN, _SEPARATOR, _END)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=_CALLS_BEGIN, then=(_BEGIN,)), Opener(literal=_BEGIN))

    def read(self, text: str, start: int, tools: Tools) -> Block:
        place = start + len(_CALLS_BEGIN) if text.startswith(_CALLS_BEGIN, start) else start
        calls: list[ToolCall] = []
        while (head := _HEAD.match(text, place)) is not None:
            try:
                arguments, end = read_json(text, head.end())
            except NotACall:
                if _END not in text[place:]:
                    break
                raise
            closer = _CLOSER.match(text, end)
            if closer is None:
                break
            calls.append(declared_call(tools, (head.group(1) or head.group(2)).strip(), arguments))
            place = closer.end()
        if not calls:
            raise Unterminated
        last = _LAST.match(text, place)
        return Block(calls, place if last is None else last.end())

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(self._forced(rules, tool) for tool in tools.values())
        items = rules.repeated(calls, between=rules.text("\n") if self.is_fenced else "", most=most)
        return f"{rules.text(_CALLS_BEGIN)} {items} {rules.text(_CALLS_END)}"

    def _forced(self, rules: Rules, tool: Tool) -> str:
        head = f"{_BEGIN}{tool.name}{_SEPARATOR}"
        tail = _END
        if self.is_fenced:
            head, tail = f"{_BEGIN}function{_SEPARATOR}{tool.name}\n```json\n", f"\n```{_END}"
        return f"{rules.text(head)} {arguments_rule(rules, tool)} {rules.text(tail)}"
