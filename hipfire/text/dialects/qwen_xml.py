"""Calls as Qwen3-Coder and Qwen3.5 write them, tags around values that are written as they are.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A value has one newline on each side that is not its own.
"""

import re

from hipfire.text.dialects.syntax import Block, Opener, Tool, Tools
from hipfire.text.dialects.unescaped import CallTags
from hipfire.text.dialects.values import typed

_TAGS = CallTags(
    head=re.compile(r"<tool_call>\s*<function=([^<>\n]+)>[ \t]*\n?"),
    tail=re.compile(r"</function>\s*</tool_call>"),
    parameter=re.compile(r"\s*<parameter=([^<>\n]+)>"),
    value_end=re.compile(r"</parameter>"),
)


class QwenXml:
    markers = ("<tool_call>", "</tool_call>")

    def openers(self, tools: Tools) -> tuple[Opener, ...]:
        return (Opener(literal="<tool_call>", then=tuple(f"<function={name}>" for name in tools)),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        call, end = _TAGS.read(text, start, tools, _value)
        return Block([call], end)


def _value(head: re.Match[str], raw: str, tool: Tool) -> object:
    return typed(raw.removeprefix("\n").removesuffix("\n"), tool, head.group(1))
