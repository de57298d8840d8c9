"""Calls as Gemma 4 writes them: `<|tool_call>call:f{a:<|"|>text<|"|>,n:3,list:[true,null]}<tool_call|>`.

Strings stand between marks of their own and nothing in them is escaped; keys are bare.
"""

import re
from collections.abc import Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import Block, CannotForce, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.values import declared_call, declared_types

_OPENER, _CLOSER, _QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
_HEAD = re.compile(r"\s*call:([^{\s]+)\s*\{")
_KEY = re.compile(rf"\s*(?:{re.escape(_QUOTE)}(.*?){re.escape(_QUOTE)}|([^:,{{}}\[\]]+?))\s*:", re.DOTALL)
_BARE = re.compile(r"[^,\[\]{}]+?(?=\s*[,\]}])")
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?")
_WORDS = {"true": True, "false": False, "null": None}
_SPACE = re.compile(r"\s*")
_MAX_DEPTH = 64
_FORCED_KEY = re.compile(r"[^\s:,{}\[\]<>]+")
_WRITTEN_AS_JSON = frozenset({"integer", "number", "boolean", "null"})


class Gemma:
    markers = (_OPENER, _CLOSER, _QUOTE)

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return (Opener(literal=_OPENER, then=("call:",)),)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        if text.find(_CLOSER, start) < 0:
            raise Unterminated
        head = _HEAD.match(text, start + len(_OPENER))
        if head is None:
            raise NotACall("no name")
        arguments, place = _object(text, head.end(), 0)
        place = _skipped(text, place)
        if not text.startswith(_CLOSER, place):
            raise NotACall("something else behind the arguments")
        return Block([declared_call(tools, head.group(1), arguments)], place + len(_CLOSER))

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(_forced(rules, tool) for tool in tools.values())
        return rules.repeated(calls, most=most)


def _forced(rules: Rules, tool: Tool) -> str:
    """Objects and arrays are not written as JSON: a tool that takes them cannot be forced."""

    def written(name: str, schema: Mapping[str, object]) -> str:
        head = rules.text(f"{name}:")
        if is_text(schema):
            return f"{head} {rules.text(_QUOTE)} {raw_value(rules, schema, tool, closer=_QUOTE)}"
        types = declared_types(schema)
        if types and types <= _WRITTEN_AS_JSON:
            return f"{head} {json_value(rules, schema, tool)}"
        raise CannotForce(f"{name} of {tool.name} is not of a simple type")

    parameters = rules.listed(parameter_rules(tool, written, name=_FORCED_KEY), between=rules.text(","))
    head, tail = rules.text(f"{_OPENER}call:{tool.name}{{"), rules.text("}" + _CLOSER)
    return f"{head} {parameters} {tail}"


def _object(text: str, place: int, depth: int) -> tuple[dict[str, object], int]:
    """Up to the closing brace; `place` is behind the opening one."""
    found: dict[str, object] = {}
    while not text.startswith("}", place := _skipped(text, place)):
        key = _KEY.match(text, place)
        if key is None:
            raise NotACall("no key")
        value, place = _value(text, key.end(), depth + 1)
        found[key.group(2) if key.group(1) is None else key.group(1)] = value
        place = _past_comma(text, place, "}")
    return found, place + 1


def _array(text: str, place: int, depth: int) -> tuple[list[object], int]:
    found: list[object] = []
    while not text.startswith("]", place := _skipped(text, place)):
        value, place = _value(text, place, depth + 1)
        found.append(value)
        place = _past_comma(text, place, "]")
    return found, place + 1


def _value(text: str, place: int, depth: int) -> tuple[object, int]:
    if depth > _MAX_DEPTH:
        raise NotACall("nested too deep")
    place = _skipped(text, place)
    if text.startswith(_QUOTE, place):
        end = text.find(_QUOTE, place + len(_QUOTE))
        if end < 0:
            raise NotACall("a string does not end")
        return text[place + len(_QUOTE) : end], end + len(_QUOTE)
    if text.startswith("{", place):
        return _object(text, place + 1, depth)
    if text.startswith("[", place):
        return _array(text, place + 1, depth)
    bare = _BARE.match(text, place)
    if bare is None:
        raise NotACall("no value")
    return _bare(bare.group()), bare.end()


def _bare(word: str) -> object:
    if word in _WORDS:
        return _WORDS[word]
    number = _NUMBER.fullmatch(word)
    if number is None or len(word) > 300:
        return word
    return float(word) if number.group(1) or number.group(2) else int(word)


def _past_comma(text: str, place: int, closer: str) -> int:
    place = _skipped(text, place)
    if text.startswith(",", place):
        return place + 1
    if text.startswith(closer, place):
        return place
    raise NotACall("no comma")


def _skipped(text: str, place: int) -> int:
    space = _SPACE.match(text, place)
    assert space is not None
    return space.end()
