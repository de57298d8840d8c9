"""Messages as gpt-oss writes them (harmony).

    <|channel|>analysis<|message|>…<|end|><|start|>assistant<|channel|>final<|message|>…

`analysis` is reasoning, `final` and what `commentary` says to nobody is the answer, and a message with a recipient
`to=functions.NAME`, in either part of the header, is a call, with JSON for its body.
"""

import re

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.channels import Address
from hipfire.text.dialects.forced import arguments_rule
from hipfire.text.dialects.syntax import NotACall, Tool, Tools
from hipfire.text.dialects.values import declared_call, read_json
from hipfire.text.markup import ToolCall

_RECIPIENT = re.compile(r"\bto=(?:functions\.)?([\w.-]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class Harmony:
    markers = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "<|end|>", "<|call|>", "<|return|>")
    header_begins = ("<|start|>", "<|channel|>", "<|message|>", "<|constrain|>", "to=")
    header_end = "<|message|>"
    start = "<|start|>"
    ends = ("<|end|>", "<|call|>", "<|return|>", "<|start|>")

    def address(self, header: str) -> Address:
        channel, recipient = _CHANNEL.search(header), _RECIPIENT.search(header)
        return Address(
            recipient.group(1) if recipient else "",
            is_reasoning=channel is not None and channel.group(1) == "analysis",
        )

    def is_whole(self, body: str) -> bool:
        """Whether it is one value; nothing at all is an object without arguments."""
        try:
            _, end = read_json(body or "{}")
        except NotACall:
            return False
        return not body[end:].strip()

    def read(self, body: str, tool: str, tools: Tools) -> ToolCall:
        arguments, _ = read_json(body or "{}")
        if not self.is_whole(body):
            raise NotACall("something else behind the arguments")
        return declared_call(tools, tool, arguments)

    def reasoning_rule(self, rules: Rules) -> str:
        head, end = rules.text("<|channel|>analysis<|message|>"), rules.until("<|end|>")
        return f"{head} {end} {rules.text('<|start|>assistant')}"

    def answer_rule(self, rules: Rules, answer: str) -> str:
        return f"{rules.text('<|channel|>final<|message|>')} {answer}"

    def call_rule(self, rules: Rules, tool: Tool) -> str:
        head = f"<|channel|>commentary to=functions.{tool.name} <|constrain|>json<|message|>"
        return f"{rules.text(head)} {arguments_rule(rules, tool)}"
