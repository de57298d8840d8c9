"""Random JSON of a grammar is JSON of its schema, as another library judges it."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_text import RandomWriter

from hipfire.errors import InvalidRequest
from hipfire.grammar.rules import Rules

WRITER = RandomWriter()


def grammar(schema: dict[str, Any], *, strict: bool = True, lenient: bool = False) -> str:
    rules = Rules(lambda text: [text], lenient=lenient)
    return rules.grammar(rules.json(schema, strict=strict))


def objects_of(values: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    properties = st.dictionaries(st.sampled_from(["a", "b", 'q"', "é", "x-guidance"]), values, max_size=3)
    return properties.flatmap(
        lambda found: st.builds(
            lambda required, more: {
                "type": "object",
                "properties": found,
                "required": required,
                "additionalProperties": more,
            },
            st.lists(st.sampled_from(sorted(found)), unique=True) if found else st.just([]),
            st.booleans(),
        )
    )


SCALARS = st.sampled_from(
    [
        {"type": "null"},
        {"type": "boolean"},
        {"type": "integer", "minimum": -3, "maximum": 70},
        {"type": "number", "exclusiveMinimum": 0, "maximum": 9.5},
        {"type": "string", "maxLength": 5},
        {"type": "string", "minLength": 2, "maxLength": 4},
        {"type": "string", "pattern": "^[a-c]{2}\\d+$"},
        {"type": "string", "format": "date"},
        {"enum": ["x", 'quo"te', 7, None, [1, {"a": 2}]]},
        {"const": {"k": [True]}},
        {"type": ["integer", "null"]},
        {"$ref": "#/$defs/tree"},
    ]
)
SCHEMAS = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        objects_of(inner),
        st.builds(lambda items, most: {"type": "array", "items": items, "maxItems": most}, inner, st.integers(0, 3)),
        st.builds(lambda first: {"type": "array", "prefixItems": [first], "items": False}, inner),
        st.lists(inner, min_size=1, max_size=3).map(lambda options: {"anyOf": options}),
    ),
    max_leaves=5,
)
TREE = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["leaf", "node"]},
        "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    },
    "required": ["kind"],
    "additionalProperties": False,
}


@settings(derandomize=True, deadline=None, max_examples=60)
@given(schema=SCHEMAS, seed=st.integers(0, 2**32))
def test_what_is_written_is_valid(schema: dict[str, Any], seed: int) -> None:
    whole = {**schema, "$defs": {"tree": TREE}}
    value = json.loads(WRITER.write(grammar(whole), seed))
    jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker()).validate(value)


@pytest.mark.parametrize("seed", range(8))
def test_any_object(seed: int) -> None:
    assert isinstance(json.loads(WRITER.write(grammar({"type": "object"}), seed)), dict)


@pytest.mark.parametrize("seed", range(8))
def test_options_for_the_library_do_not_pass(seed: int) -> None:
    hostile = {"item_separator": ";", "key_separator": "=", "whitespace_pattern": "x", "lenient": True}
    schema = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 3, "x-guidance": hostile}
    assert len(json.loads(WRITER.write(grammar(schema), seed))) in (2, 3)
    with pytest.raises(InvalidRequest):
        WRITER.write(grammar({"x-guidance": hostile, "not": {}}), seed)


def test_what_cannot_be_heeded_is_left_out_only_where_all_agree() -> None:
    schema = {"type": "array", "uniqueItems": True, "items": {"type": "boolean"}, "maxItems": 2}
    for strict, lenient in ((True, True), (True, False), (False, False)):
        with pytest.raises(InvalidRequest):
            WRITER.write(grammar(schema, strict=strict, lenient=lenient), 0)
    assert isinstance(json.loads(WRITER.write(grammar(schema, strict=False, lenient=True), 0)), list)


def test_no_half_of_a_surrogate_pair_can_be_written() -> None:
    written = "".join(
        WRITER.write(grammar({"type": "string", "minLength": 9, "maxLength": 20}), seed) for seed in range(20)
    )
    assert "\\" in written
    assert "\\u" not in written
