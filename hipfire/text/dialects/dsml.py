"""Calls as DeepSeek V3.2 and V4 write them (DSML), tags around values that are written as they are.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="NAME">
    <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

A value is text where it says so, else JSON. V3.2 says `function_calls`.
"""

import re
from collections.abc import Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, read_json
from hipfire.text.markup import ToolCall

_MARK = "｜DSML｜"
_BLOCKS = tuple(f"<{_MARK}{name}>" for name in ("tool_calls", "function_calls"))
_BLOCK = re.compile(rf"<{_MARK}(tool_calls|function_calls)>")
_INVOKE = re.compile(rf'\s*<{_MARK}invoke name="([^"]+)">')
_PARAMETER = re.compile(rf'\s*<{_MARK}parameter name="([^"]+)"(?: string="(true|false)")?>')
# A value ends where its tag closes and the next tag follows.
_VALUE_END = re.compile(rf"</{_MARK}parameter>(?=\s*(?:<{_MARK}parameter name=|</{_MARK}invoke>))")
_PARAMETER_CLOSER = f"</{_MARK}parameter>"
_NEWLINE = "\n"
_FORCED_NAME = re.compile(r'[^"\n]+')
_INVOKE_END = re.compile(rf"\s*</{_MARK}invoke>")


class Dsml:
    markers = (_MARK,)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return tuple(Opener(literal=block, then=(f"<{_MARK}invoke",)) for block in _BLOCKS)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        block = _BLOCK.match(text, start)
        if block is None:
            raise NotACall("no block of calls")
        closer = f"</{_MARK}{block.group(1)}>"
        if closer not in text[start:]:
            raise Unterminated
        calls: list[ToolCall] = []
        place = block.end()
        while (head := _INVOKE.match(text, place)) is not None:
            arguments, place = _arguments(text, head.end())
            calls.append(declared_call(tools, head.group(1), arguments))
        stripped = text[place:].lstrip()
        if not stripped.startswith(closer):
            raise NotACall("something else than a call")
        return Block(calls, len(text) - len(stripped) + len(closer))

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(_forced(rules, tool) for tool in tools.values())
        items = rules.repeated(calls, between=rules.text(_NEWLINE), most=most)
        return f"{rules.text(_BLOCKS[0] + _NEWLINE)} {items} {rules.text(f'{_NEWLINE}</{_MARK}tool_calls>')}"


def _forced(rules: Rules, tool: Tool) -> str:
    def written(name: str, schema: Mapping[str, object]) -> str:
        head = rules.text(f'<{_MARK}parameter name="{name}" string="{"true" if is_text(schema) else "false"}">')
        if is_text(schema):
            value = raw_value(rules, schema, tool, closer=_PARAMETER_CLOSER)
        else:
            value = f"{json_value(rules, schema, tool)} {rules.text(_PARAMETER_CLOSER)}"
        return f"{head} {value} {rules.text(_NEWLINE)}"

    head, tail = rules.text(f'<{_MARK}invoke name="{tool.name}">\n'), rules.text(f"</{_MARK}invoke>")
    return f"{head} {rules.listed(parameter_rules(tool, written, name=_FORCED_NAME), between='')} {tail}"


def _arguments(text: str, place: int) -> tuple[dict[str, object], int]:
    """The arguments of an invocation, and the place behind it."""
    arguments: dict[str, object] = {}
    while (head := _PARAMETER.match(text, place)) is not None:
        end = _VALUE_END.search(text, head.end())
        if end is None:
            raise NotACall("a value does not end")
        value = text[head.end() : end.start()]
        arguments[head.group(1)] = read_json(value)[0] if head.group(2) == "false" else value
        place = end.end()
    closer = _INVOKE_END.match(text, place)
    if closer is None:
        raise NotACall("an invocation does not end")
    return arguments, closer.end()
