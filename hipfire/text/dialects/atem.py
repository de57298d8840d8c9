"""Messages as Muse Glimmer writes them (ATEM).

    ` to=self<|message|>…<|eom|><|start|>assistant to=user<|message|>…<|eot|>`

What is for `self` is reasoning, what is for `user` the answer, and what is for anybody else a call:

    <atem:function_calls>
    <atem:invoke name="NAME">
    <atem:parameter name="KEY">VALUE</atem:parameter>
    </atem:invoke>
    </atem:function_calls>

Values are written as they are.
"""

import re
from collections.abc import Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.channels import Address
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import NotACall, Tool, Tools
from hipfire.text.dialects.values import typed
from hipfire.text.markup import ToolCall

_RECIPIENT = re.compile(r"\bto=(\S+)")
_CLOSER = "</atem:function_calls>"
_CALL = re.compile(
    rf'\s*<atem:function_calls>\s*<atem:invoke name="([^"]+)">(.*)</atem:invoke>\s*{_CLOSER}\s*', re.DOTALL
)
_PARAMETER_CLOSER = "</atem:parameter>"
_NEWLINE = "\n"
_FORCED_NAME = re.compile(r'[^"\n]+')
_PARAMETER = re.compile(r'\s*<atem:parameter name="([^"]+)">')
# A value ends where its tag closes and the next tag, or nothing, follows.
_VALUE_END = re.compile(r"</atem:parameter>(?=\s*(?:<atem:parameter name=|$))")


class Atem:
    markers = ("<|start|>", "<|message|>", "<|eom|>", "<|eot|>")
    header_begins = ("<|start|>", "to=")
    header_end = "<|message|>"
    start = "<|start|>"
    ends = ("<|eom|>", "<|eot|>", "<|start|>")

    def address(self, header: str) -> Address:
        recipient = _RECIPIENT.search(header)
        name = recipient.group(1) if recipient is not None else "user"
        return Address("" if name in ("self", "user") else name, is_reasoning=name == "self")

    def is_whole(self, body: str) -> bool:
        return body.rstrip().endswith(_CLOSER)

    def read(self, body: str, tool: str, tools: Tools) -> ToolCall:
        call = _CALL.fullmatch(body)
        declared = tools.get(call.group(1)) if call is not None else None
        if call is None or declared is None:
            raise NotACall(f"no call of {tool}")
        inner, place = call.group(2), 0
        arguments: dict[str, object] = {}
        while (head := _PARAMETER.match(inner, place)) is not None:
            end = _VALUE_END.search(inner, head.end())
            if end is None:
                raise NotACall("a value does not end")
            arguments[head.group(1)] = typed(inner[head.end() : end.start()], declared, head.group(1))
            place = end.end()
        if inner[place:].strip():
            raise NotACall("something else than a parameter")
        return ToolCall(declared.name, arguments)

    def reasoning_rule(self, rules: Rules) -> str:
        return f"{rules.text(' to=self<|message|>')} {rules.until('<|eom|>')} {rules.text('<|start|>assistant')}"

    def answer_rule(self, rules: Rules, answer: str) -> str:
        return f"{rules.text(' to=user<|message|>')} {answer}"

    def call_rule(self, rules: Rules, tool: Tool) -> str:
        def written(name: str, schema: Mapping[str, object]) -> str:
            head = rules.text(f'<atem:parameter name="{name}">')
            if is_text(schema):
                value = raw_value(rules, schema, tool, closer=_PARAMETER_CLOSER)
            else:
                value = f"{json_value(rules, schema, tool)} {rules.text(_PARAMETER_CLOSER)}"
            return f"{head} {value} {rules.text(_NEWLINE)}"

        head = rules.text(f' to={tool.name}<|message|><atem:function_calls>\n<atem:invoke name="{tool.name}">\n')
        parameters = rules.listed(parameter_rules(tool, written, name=_FORCED_NAME), between="")
        return f"{head} {parameters} {rules.text('</atem:invoke>' + _NEWLINE + _CLOSER)}"
