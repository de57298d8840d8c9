"""Calls as Llama 3 writes them: the whole answer is `{"name": "f", "parameters": {…}}`.

`<|python_tag|>` may stand in front of that, of a call of a built-in tool, `brave_search.call(query="…")`, or of Python
code for a tool named `python`. Several objects stand one behind the other, with `;` or white space between them.
"""

import re

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.hermes_json import calls_of_json, json_call
from hipfire.text.dialects.pythonic import read_call
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, read_json
from hipfire.text.markup import ToolCall

_TAG = "<|python_tag|>"
_KEYS = ('"name"', '"type"', '"function"', '"parameters"', '"arguments"')
_BUILTIN = re.compile(r"([\w-]+)\.call(?=\()")
_BETWEEN = re.compile(r"[\s;]*")
_HEAD = '{{"name": {name}, "parameters": '


class LlamaJson:
    markers = (_TAG,)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=_TAG), Opener(literal="{", then=_KEYS, at_start=True))

    def read(self, text: str, start: int, tools: Tools) -> Block:
        if not text.startswith(_TAG, start):
            return _objects(text, start, tools)
        start += len(_TAG)
        if text[start:].lstrip().startswith("{"):
            return _objects(text, start, tools)
        return Block([_built_in(text[start:], tools)], len(text))

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(json_call(rules, tool, head=_HEAD) for tool in tools.values())
        return rules.repeated(calls, between=rules.text("; "), most=most)


def _objects(text: str, start: int, tools: Tools) -> Block:
    """Objects to the end of the text: what has something else behind it is an answer in JSON."""
    calls: list[ToolCall] = []
    while start < len(text):
        try:
            value, end = read_json(text, start)
        except NotACall:
            if text[start:].lstrip().startswith("{"):
                raise Unterminated from None
            raise
        calls += calls_of_json(tools, value)
        between = _BETWEEN.match(text, end)
        assert between is not None
        start = between.end()
    return Block(calls, start)


def _built_in(code: str, tools: Tools) -> ToolCall:
    head = _BUILTIN.match(code.strip())
    if head is None:
        return declared_call(tools, "python", {"code": code})
    call, _ = read_call(head.group(1) + code.strip()[head.end() :], 0)
    return declared_call(tools, *call)
