"""Calls as a JSON object between tags: `<tool_call>{"name": "f", "arguments": {…}}</tool_call>`.

Hermes, Qwen2.5, Qwen3, SmolLM, Granite 4 and, with other tags, Granite 3 and Phi-4-mini; a tag may also hold an array
of calls. JSON says itself where it ends, so that tags within its strings are no matter.
"""

import json
from collections.abc import Sequence

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import arguments_rule
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import call_of_json, read_json
from hipfire.text.markup import ToolCall

_HEAD = '{{"name": {name}, "arguments": '


@attrs.frozen(kw_only=True)
class HermesJson:
    """`closer` is optional in families whose calls end with the answer, and which write an array of them.

    `head` is how a call begins, up to its arguments.
    """

    opener: str = "<tool_call>"
    closer: str = "</tool_call>"
    needs_closer: bool = True
    head: str = _HEAD

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.opener, self.closer)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=self.opener, then=("{", "[")),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        try:
            value, end = read_json(text, start + len(self.opener))
        except NotACall:
            if self.closer not in text[start:]:
                raise Unterminated from None
            raise
        calls = calls_of_json(tools, value)
        behind = text[end:]
        stripped = behind.lstrip()
        if stripped.startswith(self.closer):
            return Block(calls, end + len(behind) - len(stripped) + len(self.closer))
        if not self.needs_closer:
            return Block(calls, end)
        if self.closer.startswith(stripped):
            raise Unterminated
        raise NotACall("something else behind the object")

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(json_call(rules, tool, head=self.head) for tool in tools.values())
        if not self.needs_closer:
            items = rules.repeated(calls, between=rules.text(", "), most=most)
            return f"{rules.text(self.opener + '[')} {items} {rules.text(']' + self.closer)}"
        opener, closer, newline = rules.text(f"{self.opener}\n"), rules.text(f"\n{self.closer}"), rules.text("\n")
        return rules.repeated(rules.rule(f"{opener} {calls} {closer}"), between=newline, most=most)


def json_call(rules: Rules, tool: Tool, *, head: str = _HEAD) -> str:
    """A rule for one call as an object, written as templates write it: `head`, with the name in it, and arguments."""
    written = rules.text(head.format(name=json.dumps(tool.name, ensure_ascii=False)))
    return f"{written} {arguments_rule(rules, tool)} {rules.text('}')}"


def calls_of_json(tools: Tools, value: object) -> Sequence[ToolCall]:
    """One call, or an array of them."""
    return [call_of_json(tools, item) for item in (value if isinstance(value, list) else [value])]
