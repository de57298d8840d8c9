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

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.channels import Address
from hipfire.text.dialects.invocations import invocation_rule
from hipfire.text.dialects.syntax import NotACall, Tool, Tools
from hipfire.text.dialects.unescaped import CallTags
from hipfire.text.dialects.values import typed
from hipfire.text.markup import ToolCall

_RECIPIENT = re.compile(r"\bto=(\S+)")
_CLOSER = "</atem:function_calls>"
_CALL = re.compile(
    rf'\s*<atem:function_calls>\s*<atem:invoke name="([^"]+)">(.*)</atem:invoke>\s*{_CLOSER}\s*', re.DOTALL
)
_TAGS = CallTags(
    head=re.compile(r'<atem:invoke name="([^"]+)">'),
    tail=re.compile(r"</atem:invoke>"),
    parameter=re.compile(r'\s*<atem:parameter name="([^"]+)">'),
    value_end=re.compile(r"</atem:parameter>"),
)
_NEWLINE = "\n"


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
        return ToolCall(declared.name, _TAGS.arguments(call.group(2), declared, _value))

    def reasoning_rule(self, rules: Rules) -> str:
        return f"{rules.text(' to=self<|message|>')} {rules.until('<|eom|>')} {rules.text('<|start|>assistant')}"

    def answer_rule(self, rules: Rules, answer: str) -> str:
        return f"{rules.text(' to=user<|message|>')} {answer}"

    def call_rule(self, rules: Rules, tool: Tool) -> str:
        head = rules.text(f" to={tool.name}<|message|><atem:function_calls>\n")
        return f"{head} {invocation_rule(rules, tool, mark='atem:')} {rules.text(_NEWLINE + _CLOSER)}"


def _value(head: re.Match[str], raw: str, tool: Tool) -> object:
    return typed(raw, tool, head.group(1))
