"""Calls as Mistral's models write them.

Up to tokenizer v7 an array, `[TOOL_CALLS][{"name": "f", "arguments": {…}}]`; from v11 on a marker for each call,
`[TOOL_CALLS]f[ARGS]{…}`, with `[CALL_ID]…` in front of the arguments in v11.
"""

import re

from hipfire.text.dialects.hermes_json import calls_of_json
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, read_json

_MARKER = "[TOOL_CALLS]"
_HEAD = re.compile(r"\s*([\w.-]+)\s*(?:\[CALL_ID\]\s*[\w-]*\s*)?(?:\[ARGS\])?(?=\s*\{)")


class Mistral:
    markers = (_MARKER, "[CALL_ID]", "[ARGS]")

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
