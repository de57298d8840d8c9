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
from collections.abc import Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import Block, Opener, Tool, Tools
from hipfire.text.dialects.unescaped import CallTags
from hipfire.text.dialects.values import typed

_TAGS = CallTags(
    head=re.compile(r"<tool_call>\s*<function=([^<>\n]+)>[ \t]*\n?"),
    tail=re.compile(r"</function>\s*</tool_call>"),
    parameter=re.compile(r"\s*<parameter=([^<>\n]+)>"),
    value_end=re.compile(r"</parameter>"),
)
_FORCED_NAME = re.compile(r"[^<>\n]+")
_NEWLINE = "\n"


class QwenXml:
    markers = ("<tool_call>", "</tool_call>")

    def openers(self, tools: Tools) -> tuple[Opener, ...]:
        return (Opener(literal="<tool_call>", then=tuple(f"<function={name}>" for name in tools)),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        call, end = _TAGS.read(text, start, tools, _value)
        return Block([call], end)

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(_forced(rules, tool) for tool in tools.values())
        return rules.repeated(calls, between=rules.text(_NEWLINE), most=most)


def _forced(rules: Rules, tool: Tool) -> str:
    def written(name: str, schema: Mapping[str, object]) -> str:
        head = rules.text(f"<parameter={name}>\n")
        if is_text(schema):
            value = raw_value(rules, schema, tool, closer="</parameter>")
        else:
            value = f"{json_value(rules, schema, tool)} {rules.text(_NEWLINE + '</parameter>')}"
        return f"{head} {value} {rules.text(_NEWLINE)}"

    head, tail = rules.text(f"<tool_call>\n<function={tool.name}>\n"), rules.text("</function>\n</tool_call>")
    return f"{head} {rules.listed(parameter_rules(tool, written, name=_FORCED_NAME), between='')} {tail}"


def _value(head: re.Match[str], raw: str, tool: Tool) -> object:
    return typed(raw.removeprefix("\n").removesuffix("\n"), tool, head.group(1))
