"""Calls as LFM2 writes them: `<|tool_call_start|>[f(a="x", n=3, b=True), g()]<|tool_call_end|>`.

Python's literals, and JSON's names for its constants. Names of arguments may be words that Python keeps to itself.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import json_value, parameter_rules
from hipfire.text.dialects.syntax import Block, CannotForce, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import declared_call

_OPENER, _CLOSER = "<|tool_call_start|>", "<|tool_call_end|>"
_NAME = re.compile(r"\s*([\w.-]+)\s*\(")
_KEY = re.compile(r"\s*([\w-]+)\s*=")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORD = re.compile(r"[A-Za-z]+")
_WORDS = {"True": True, "true": True, "False": False, "false": False, "None": None, "null": None}
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_STRING = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"", re.DOTALL)
_MAX_DEPTH = 64
_FORCED_NAME, _FORCED_KEY = re.compile(r"[\w.-]+"), re.compile(r"[\w-]+")

Item = TypeVar("Item")


class Pythonic:
    markers = (_OPENER, _CLOSER)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=_OPENER),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        if text.find(_CLOSER, start) < 0:
            raise Unterminated
        place = start + len(_OPENER)
        calls, place = _sequence(text, _past(text, place, "["), "]", read_call)
        return Block([declared_call(tools, *call) for call in calls], _past(text, place, _CLOSER))

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        """Values as JSON: of Python's, only the constants are written differently, and both are read."""
        items = rules.repeated(
            rules.choice(_forced(rules, tool) for tool in tools.values()), between=rules.text(", "), most=most
        )
        return f"{rules.text(_OPENER + '[')} {items} {rules.text(']' + _CLOSER)}"


def _forced(rules: Rules, tool: Tool) -> str:
    if _FORCED_NAME.fullmatch(tool.name) is None:
        raise CannotForce(f"the tool {tool.name!r} has such a name")

    def written(name: str, schema: Mapping[str, object]) -> str:
        return f"{rules.text(name + '=')} {json_value(rules, schema, tool)}"

    parameters = parameter_rules(tool, written, name=_FORCED_KEY)
    return f"{rules.text(tool.name + '(')} {rules.listed(parameters, between=rules.text(', '))} {rules.text(')')}"


def read_call(text: str, place: int, depth: int = 0) -> tuple[tuple[str, dict[str, object]], int]:
    """`f(a=1)` as a name and arguments, and the place behind it. Raises NotACall."""
    head = _NAME.match(text, place)
    if head is None:
        raise NotACall("no name")
    arguments, place = _sequence(text, head.end(), ")", _argument, depth)
    return (head.group(1), dict(arguments)), place


def _argument(text: str, place: int, depth: int) -> tuple[tuple[str, object], int]:
    key = _KEY.match(text, place)
    if key is None:
        raise NotACall("an argument without a name")
    value, place = _value(text, key.end(), depth)
    return (key.group(1), value), place


def _item(text: str, place: int, depth: int) -> tuple[tuple[str, object], int]:
    key, place = _value(text, place, depth)
    value, place = _value(text, _past(text, place, ":"), depth)
    return (str(key), value), place


def _value(text: str, place: int, depth: int) -> tuple[object, int]:
    if depth > _MAX_DEPTH:
        raise NotACall("nested too deep")
    place = _skipped(text, place)
    if text[place : place + 1] == "[":
        return _sequence(text, place + 1, "]", _value, depth)
    if text[place : place + 1] == "{":
        items, place = _sequence(text, place + 1, "}", _item, depth)
        return dict(items), place
    if (string := _STRING.match(text, place)) is not None:
        return _unescaped(string.group(1) if string.group(2) is None else string.group(2)), string.end()
    if (number := _NUMBER.match(text, place)) is not None:
        return _number(number), number.end()
    word = _WORD.match(text, place)
    if word is None or word.group() not in _WORDS:
        raise NotACall("no value")
    return _WORDS[word.group()], word.end()


def _sequence(
    text: str, place: int, closer: str, read: Callable[[str, int, int], tuple[Item, int]], depth: int = 0
) -> tuple[list[Item], int]:
    """Items with commas between them, up to the closer; the place behind that."""
    items: list[Item] = []
    while not text.startswith(closer, place := _skipped(text, place)):
        item, place = read(text, place, depth + 1)
        items.append(item)
        place = _skipped(text, place)
        if not text.startswith(closer, place):
            place = _past(text, place, ",")
    return items, place + len(closer)


def _past(text: str, place: int, literal: str) -> int:
    place = _skipped(text, place)
    if not text.startswith(literal, place):
        raise NotACall(f"{literal!r} is missing")
    return place + len(literal)


def _skipped(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    assert space is not None
    return space.end()


def _number(match: re.Match[str]) -> int | float:
    try:
        return float(match.group()) if match.group(1) or match.group(2) else int(match.group())
    except ValueError:
        raise NotACall("a number of too many digits") from None


def _unescaped(body: str) -> str:
    return _ESCAPE.sub(_character, body)


def _character(match: re.Match[str]) -> str:
    code = match.group(1)
    if len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPED.get(code, code)
