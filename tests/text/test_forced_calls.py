"""Whatever a model says that is forced to call, the family's own reader finds calls in it, and they are valid."""

from collections.abc import Mapping
from typing import Any

import jsonschema
import pytest
from markup_reading import read
from random_text import RandomWriter

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.families import FAMILIES
from hipfire.text.dialects.family import Family
from hipfire.text.dialects.syntax import CannotForce, Tool
from hipfire.text.literals import LiteralMatcher

WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"type": "string", "enum": ["celsius", 'it\'s "hot"']},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "sure": {"type": "boolean"},
    },
    "required": ["city", "days"],
    "additionalProperties": False,
}
OPTIONAL = {"type": "object", "properties": {"n": {"type": ["number", "null"]}, "text": {"type": "string"}}}
NESTED = {
    "type": "object",
    "properties": {
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "maxItems": 3},
        "who": {"$ref": "#/$defs/who"},
    },
    "required": ["who"],
    "additionalProperties": False,
    "$defs": {
        "who": {
            "type": "object",
            "properties": {"a": {"type": "integer"}},
            "required": ["a"],
            "additionalProperties": False,
        }
    },
}
SIMPLE = {"get_weather": WEATHER, "g.h-1": OPTIONAL}
ALL = {**SIMPLE, "nested": NESTED}
PHRASES = ("</think>", "</parameter>", "[/THINK]", "<|end|>", "<|eom|>", "</atem:parameter>", "</｜DSML｜parameter>",
           "<channel|>", "<|END_THINKING|>", '<|"|>')  # fmt: skip
CALLING = [family for family in FAMILIES if family.has_calls]


def tools(schemas: Mapping[str, Mapping[str, object]], *, is_strict: bool = False) -> dict[str, Tool]:
    return {name: Tool(name=name, parameters=schema, is_strict=is_strict) for name, schema in schemas.items()}


def grammar(family: Family, declared: Mapping[str, Tool], control: Mapping[str, int], **fields: Any) -> str:
    rules = Rules(LiteralMatcher(control).split)
    fields = {"answer": None, "most_calls": 3, "begins_inside": False, "may_reason": True, **fields}
    return rules.grammar(family.output_rule(rules, tools=declared, **fields))


@pytest.mark.parametrize("as_control", [False, True], ids=["as text", "as control tokens"])
@pytest.mark.parametrize("family", CALLING, ids=lambda family: family.name)
def test_forced_calls_are_read_and_valid(family: Family, as_control: bool) -> None:
    control = {marker: 257 + index for index, marker in enumerate(dict.fromkeys(family.markers))} if as_control else {}
    writer = RandomWriter(control, phrases=PHRASES)
    declared = tools(SIMPLE if family.name == "gemma4" else ALL)
    for seed in range(4):
        begins_inside = family.tags is not None and seed % 2 == 0
        said = writer.write(grammar(family, declared, control, begins_inside=begins_inside), seed)
        reading = read(family, [said], declared=declared, begins_inside=begins_inside)
        assert reading.text.strip() == "", said
        assert 1 <= len(reading.calls) <= 3, said
        for name, arguments in reading.calls:
            jsonschema.validate(dict(arguments), declared[name].parameters)


@pytest.mark.parametrize("family", CALLING, ids=lambda family: family.name)
def test_one_call_is_one(family: Family) -> None:
    writer = RandomWriter(phrases=PHRASES)
    for seed in range(4):
        said = writer.write(grammar(family, tools(SIMPLE), {}, most_calls=1, may_reason=False), seed)
        assert len(read(family, [said], declared=tools(SIMPLE)).calls) == 1


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_an_answer_comes_behind_the_reasoning(family: Family) -> None:
    writer = RandomWriter(phrases=PHRASES)
    for seed in range(4):
        begins_inside = family.tags is not None and seed % 2 == 0
        said = writer.write(grammar(family, {}, {}, answer='"yes"', begins_inside=begins_inside), seed)
        assert read(family, [said], begins_inside=begins_inside).text.strip() == "yes"


def test_reasoning_that_is_off_is_not_opened_again() -> None:
    (qwen,) = (family for family in FAMILIES if family.name == "qwen3")
    writer = RandomWriter(phrases=PHRASES)
    assert {writer.write(grammar(qwen, {}, {}, answer='"yes"', may_reason=False), seed) for seed in range(9)} == {"yes"}
    assert len({writer.write(grammar(qwen, {}, {}, answer='"yes"'), seed) for seed in range(9)}) > 1


def test_an_answer_or_a_call() -> None:
    (hermes,) = (family for family in FAMILIES if family.name == "hermes")
    writer = RandomWriter()
    said = [writer.write(grammar(hermes, tools(SIMPLE), {}, answer='"{}"'), seed) for seed in range(20)]
    readings = [read(hermes, [text], declared=tools(SIMPLE)) for text in said]
    assert {bool(reading.calls) for reading in readings} == {True, False}
    assert all(bool(reading.calls) != (reading.text == "{}") for reading in readings)


@pytest.mark.parametrize(
    ("family", "schema", "is_strict"),
    [
        ("qwen3.5", {"properties": {"a>b": {"type": "string"}}}, False),
        ("qwen3.5", {"anyOf": [{"required": ["a"]}]}, False),
        ("qwen3.5", {"properties": {"a": {"$ref": "#/properties/b"}, "b": {"type": "integer"}}}, False),
        ("qwen3.5", {"properties": {"a": {"type": "string", "enum": ["x</parameter>"]}}}, False),
        ("qwen3.5", {"properties": {"a": {"type": "string", "pattern": "x"}}}, True),
        ("lfm2", {"properties": {"a b": {"type": "integer"}}}, False),
        ("deepseek-v4", {"properties": {'a"b': {"type": "integer"}}}, False),
        ("glimmer", {"properties": {'a"b': {"type": "integer"}}}, False),
        ("gemma4", {"properties": {"a": {"type": "array"}}}, False),
        ("gemma4", {"properties": {"a:b": {"type": "string"}}}, False),
        ("thinking", {}, False),
    ],
)
def test_what_a_syntax_cannot_be_forced_to_is_said(family: str, schema: dict[str, Any], is_strict: bool) -> None:
    (row,) = (row for row in FAMILIES if row.name == family)
    with pytest.raises(CannotForce):
        grammar(row, tools({"f": schema}, is_strict=is_strict), {})


def test_a_text_that_is_written_as_it_is_may_say_more_than_is_kept_to_unless_it_is_strict() -> None:
    (qwen,) = (family for family in FAMILIES if family.name == "qwen3.5")
    dated = {"properties": {"a": {"type": "string", "format": "date"}}}
    assert "parameter=a" in grammar(qwen, tools({"f": dated}), {})
    with pytest.raises(CannotForce, match="format"):
        grammar(qwen, tools({"f": dated}, is_strict=True), {})
