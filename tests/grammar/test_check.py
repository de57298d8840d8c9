import json
import subprocess
import sys
from typing import Any

import pytest

from hipfire.grammar.check import examine
from hipfire.grammar.rules import Rules


def grammar(schema: dict[str, Any]) -> str:
    rules = Rules(lambda text: [text])
    return rules.grammar(rules.json(schema, strict=True))


def run(*asked: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "hipfire.grammar.check"],
        input=json.dumps(asked).encode(),
        capture_output=True,
        check=False,
        timeout=60,
    )


GOOD, BAD, WORSE = grammar({"type": "string"}), grammar({"not": {}}), grammar({"type": "nothing"})


def test_the_first_that_can_be_used_is_chosen() -> None:
    assert examine([GOOD, BAD]) == {"chosen": 0, "error": None}
    found = examine([BAD, GOOD])
    assert found["chosen"] == 1
    assert "not" in str(found["error"])
    assert examine([BAD, WORSE]) == {"chosen": None, "error": found["error"]}


def test_what_is_wrong_with_a_pattern_is_told() -> None:
    found = examine([grammar({"type": "string", "pattern": "a(b"})])
    assert found == {"chosen": None, "error": "regex parse error: unclosed group"}


@pytest.mark.parametrize(
    "schema", [{"$ref": "#"}, {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}]}}, "$ref": "#/$defs/a"}]
)
def test_a_schema_that_is_only_itself_is_refused(schema: dict[str, Any]) -> None:
    assert examine([grammar(schema)]) == {"chosen": None, "error": "nothing goes on, or ends, as it must"}


def test_a_schema_that_has_itself_in_it_is_taken() -> None:
    assert examine([grammar({"type": "array", "items": {"$ref": "#"}})]) == {"chosen": 0, "error": None}


def test_the_program_answers_all_that_it_is_asked() -> None:
    done = run([GOOD], [BAD, GOOD])
    assert done.returncode == 0
    assert [found["chosen"] for found in json.loads(done.stdout)] == [0, 1]


HOSTILE = {
    # Its stack overflows.
    "references": grammar(
        {
            "$defs": {f"d{i}": {"type": "array", "items": {"$ref": f"#/$defs/d{i + 1}"}} for i in range(20_000)},
            "$ref": "#/$defs/d0",
        }
    ),
    # Takes seconds.
    "properties": grammar({"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(10_000)}}),
    # Takes half a gigabyte.
    "values": grammar({"enum": [f"value {i}" for i in range(500_000)]}),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_the_program_dies_of_what_is_too_much(hostile: str) -> None:
    done = run([hostile])
    assert done.returncode < 0
    assert done.stdout == b""


def test_what_is_not_supported_is_told_with_what_is() -> None:
    overlapping = {"oneOf": [{"type": "string", "minLength": 1}, {"type": "string", "maxLength": 5}]}
    assert examine([grammar(overlapping)])["error"] == "oneOf is not supported: use anyOf, or strict false"
