"""Calls as Mistral's models write them.

Up to tokenizer v7 an array, `[TOOL_CALLS][{"name": "f", "arguments": {…}}]`; from v11 on a marker for each call,
`[TOOL_CALLS]f[ARGS]{…}`, with `[CALL_ID]…` in front of the arguments in v11.
"""

import re

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import arguments_rule
from hipfire.text.dialects.hermes_json import calls_of_json, json_call
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, read_json

_MARKER, _CALL_ID, _ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\])?(?=\s*\{)")


class Mistral:
    markers = (_MARKER, _CALL_ID, _ARGUMENTS)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=_MARKER),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        start += len(_MARKER)
        head = _HEAD.match(text, start)
        try:
            value, end = read_json(text, start if head is None else head.end())
        except NotACall:
            # Nothing closes a call but its own JSON.
            raise Unterminated from None
        if head is None:
            return Block(calls_of_json(tools, value), end)
        return Block([declared_call(tools, head.group(1), value)], end)

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        if rules.is_control(_ARGUMENTS):
            calls = rules.choice(_marked(rules, tool) for tool in tools.values())
            return rules.repeated(calls, most=most)
        calls = rules.choice(json_call(rules, tool) for tool in tools.values())
        items = rules.repeated(calls, between=rules.text(", "), most=most)
        return f"{rules.text(_MARKER + '[')} {items} {rules.text(']')}"


def _marked(rules: Rules, tool: Tool) -> str:
    identity = f"({rules.text(_CALL_ID)} /[a-zA-Z0-9]{{9}}/)?" if rules.is_control(_CALL_ID) else ""
    head = f"{rules.text(_MARKER + tool.name)} {identity} {rules.text(_ARGUMENTS)}"
    return f"{head} {arguments_rule(rules, tool)}"
