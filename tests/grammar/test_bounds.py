import time
from typing import Any

import pytest

from hipfire.errors import InvalidRequest
from hipfire.grammar import bounds
from hipfire.grammar.bounds import check_bounds


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def pattern(text: str) -> dict[str, Any]:
    return {"type": "string", "pattern": text}


HOSTILE = {
    "60,000 nested groups": pattern("(" * 60_000 + "a" + ")" * 60_000),
    "groups in a key": {"patternProperties": {"(" * 65 + "a" + ")" * 65: {}}},
    "nested repetitions": pattern("((a{1000}){1000}){1000}"),
    "repetitions one by one": pattern("(a{100}b{100}){101}"),
    "a repeated class": pattern(r"[\]x]{30000}"),
    "an open repetition": pattern("(ab){11000,}"),
    "a large range": pattern("a{0,999999999999999999999999}"),
    "ten megabytes": {"properties": {f"p{i}" * 20: {"type": "string"} for i in range(100_000)}},
    "one long string": {"const": "x" * 10_000_000},
    "one long name": {"properties": {"x" * 10_000_000: {}}},
    "a million values": {"enum": list(range(1_000_000))},
    "many small objects": {"$defs": {f"d{i}": {"items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(20_000)}},
    "deep": nested(30_000),
    "minItems": {"type": "array", "minItems": 10**9},
    "minLength": {"type": "string", "minLength": 10**400},
    "minProperties": {"type": "object", "minProperties": 1e9},
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_schema_is_refused_at_once(schema: dict[str, Any]) -> None:
    start = time.process_time()
    with pytest.raises(InvalidRequest, match=r"^the\.path: ") as caught:
        check_bounds({"anyOf": [{"type": "null"}, schema]}, "the.path")
    # It takes some milliseconds; whoever looked at all of it would take longer than this.
    assert time.process_time() - start < 0.2
    assert caught.value.param == "the.path"
    assert len(caught.value.message) < 200


FRIENDLY = {
    "nothing": {},
    "depth": nested(60),
    "width": {"properties": {f"p{i}": {"type": "string", "description": "d" * 50} for i in range(2000)}},
    "values": {"enum": [f"value {i}" for i in range(10_000)]},
    "groups": pattern("(" * 60 + "a" + ")" * 60),
    "a date": pattern(r"^\d{4}-\d{2}-\d{2}T(\d{2}:){2}\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})$"),
    "brackets that are no groups": pattern(r"[({]{40}\(\)\{1000,2000\}" * 20),
    "groups beside each other": pattern("(a)" * 1000),
    "unbalanced": pattern(")" * 1000),
    "keywords as names": {"properties": {"minItems": {"type": "integer"}, "pattern": {"type": "string"}}},
    "repetitions": pattern("(ab?c{1,9}){100}"),
}


@pytest.mark.parametrize("schema", FRIENDLY.values(), ids=FRIENDLY.keys())
def test_what_people_write_passes(schema: dict[str, Any]) -> None:
    check_bounds(schema, "schema")


def test_the_bounds_are_exact() -> None:
    check_bounds({"minItems": bounds.MAX_LEAST}, "schema")
    check_bounds({"const": "x" * (bounds.MAX_CHARACTERS - len("const"))}, "schema")
    check_bounds({"enum": [0] * (bounds.MAX_NODES - 1)}, "schema")
    check_bounds(pattern("a" * bounds.MAX_PATTERN), "schema")
    check_bounds(pattern(f"a{{{bounds.MAX_PATTERN}}}"), "schema")
    # The innermost has a type, which is a level of its own.
    check_bounds(nested(bounds.MAX_DEPTH - 2), "schema")
    for schema in (
        {"minItems": bounds.MAX_LEAST + 1},
        {"const": "x" * bounds.MAX_CHARACTERS},
        {"enum": [0] * bounds.MAX_NODES},
        pattern("a" * bounds.MAX_PATTERN + "b"),
        pattern(f"a{{{bounds.MAX_PATTERN}}}b"),
        nested(bounds.MAX_DEPTH - 1),
    ):
        with pytest.raises(InvalidRequest):
            check_bounds(schema, "schema")


ROUND_AND_ROUND = {
    "the whole": {"$ref": "#"},
    "below a property": {"properties": {"a": {"$ref": "#/$defs/l"}}, "$defs": {"l": {"$ref": "#/$defs/l"}}},
    "two of them": {"items": {"$ref": "#/$defs/a"}, "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
    "with a slash in its name": {"items": {"$ref": "#/$defs/a~1b"}, "$defs": {"a/b": {"$ref": "#/$defs/a~1b"}}},
    "in a list": {"items": {"$ref": "#/anyOf/0"}, "anyOf": [{"$ref": "#/anyOf/0"}]},
    "escaped": {"items": {"$ref": "#/%24defs/a"}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
}


@pytest.mark.parametrize("schema", ROUND_AND_ROUND.values(), ids=ROUND_AND_ROUND)
def test_a_reference_to_nothing_but_itself_is_refused(schema: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="refers to nothing but itself"):
        check_bounds(schema, "schema")


def test_a_schema_may_have_itself_in_it() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "all": {"$ref": "#"}}}
    check_bounds({"$ref": "#/$defs/node", "$defs": {"node": node, "other": {"$ref": "#/$defs/node"}}}, "schema")
    check_bounds({"items": {"$ref": "#/$defs/nobody"}, "anyOf": [{"$ref": "https://example.com/a"}]}, "schema")


def test_a_long_chain_of_references_is_followed_once() -> None:
    chain = {f"d{i}": {"$ref": f"#/$defs/d{i + 1}"} for i in range(5000)} | {"d5000": {"type": "string"}}
    check_bounds({"$ref": "#/$defs/d0", "$defs": chain}, "schema")
