"""Calls as Qwen3-Coder and Qwen3.5 write them, tags around values that are written as they are.

    <tool_call>
    <function=NAME>
    <parameter=KEY>
    VALUE
    </parameter>
    </function>
    </tool_call>

A value has one newline on each side that is not its own. Nothing in it is escaped, so it may hold all of these tags:
see `_call_end` and `_value_end` for what is then taken for its end.
"""

import re
from collections.abc import Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import typed
from hipfire.text.markup import ToolCall

_HEAD = re.compile(r"<tool_call>\s*<function=([^<>\n]+)>[ \t]*\n?")
_TAIL = re.compile(r"</function>\s*</tool_call>")
_PARAMETER = re.compile(r"\s*<parameter=([^<>\n]+)>")
_VALUE_END = re.compile(r"</parameter>")
_FORCED_NAME = re.compile(r"[^<>\n]+")
_NEWLINE = "\n"


class QwenXml:
    markers = ("<tool_call>", "</tool_call>")

    def openers(self, tools: Tools) -> tuple[Opener, ...]:
        return (Opener(literal="<tool_call>", then=tuple(f"<function={name}>" for name in tools)),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        head = _HEAD.match(text, start)
        tool = tools.get(head.group(1)) if head is not None else None
        if head is None or tool is None:
            raise NotACall("no call of a declared function")
        body_end, end = _call_end(text, start, tools)
        return Block([ToolCall(tool.name, _arguments(text[head.end() : body_end], tool))], end)

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


def _call_end(text: str, start: int, tools: Tools) -> tuple[int, int]:
    """Where the closing tags of the call at `start` begin and end.

    These are the last ones before the next call opens. Where there are fewer of them than calls that have opened,
    what opened is a call in a value, and the search goes on behind it. Raises Unterminated.
    """
    opened = [match.start() for match in _HEAD.finditer(text, start) if match.group(1) in tools]
    tails = list(_TAIL.finditer(text, start))
    if not tails:
        raise Unterminated
    for n_opened, until in enumerate([*opened[1:], len(text)], start=1):
        before = [tail for tail in tails if tail.end() <= until]
        if len(before) >= n_opened:
            return before[-1].span()
    return tails[-1].span()


def _arguments(body: str, tool: Tool) -> dict[str, object]:
    arguments: dict[str, object] = {}
    place = 0
    while body[place:].strip():
        head = _PARAMETER.match(body, place)
        if head is None:
            raise NotACall("something else than a parameter")
        name = head.group(1)
        value_end, place = _value_end(body, head.end(), {*arguments, name}, tool)
        arguments[name] = typed(_without_frame(body[head.end() : value_end]), tool, name)
    return arguments


def _value_end(body: str, start: int, seen: set[str], tool: Tool) -> tuple[int, int]:
    """Where the closing tag of a value begins and ends.

    It is the first one behind which another parameter of the tool begins, or else the last one.
    """
    last = None
    for last in _VALUE_END.finditer(body, start):
        following = _PARAMETER.match(body, last.end())
        if following is not None and following.group(1) not in seen and _takes(tool, following.group(1)):
            return last.span()
    if last is None or body[last.end() :].strip():
        raise NotACall("a value does not end")
    return last.span()


def _takes(tool: Tool, name: str) -> bool:
    return name in tool.properties or not tool.properties or bool(tool.parameters.get("additionalProperties"))


def _without_frame(value: str) -> str:
    return value.removeprefix("\n").removesuffix("\n")
