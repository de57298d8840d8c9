"""Whether constrained answers keep to what they must be, and what that costs, at temperature 1.

    hipfire serve MODEL &
    python benchmarks/constrained.py [--url http://127.0.0.1:11435] [--answers 50] [--calls 20]
    python benchmarks/constrained.py --masks MODEL.gguf

Asks a server for answers of a schema and for forced calls, one after the other, and counts those that are valid.
`--masks` measures without a server what a token's mask costs: time of the processor in µs, over a text of each kind.
"""

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import httpx

from hipfire.formats.open import open_checkpoint
from hipfire.grammar.matcher import TokenTable
from hipfire.grammar.rules import Rules
from hipfire.grammar.tokens import unpack_tokens
from hipfire.service.constraint import vocabulary_of
from hipfire.text.literals import LiteralMatcher
from hipfire.text.tokenizer import Tokenizer

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "mood": {"enum": ["glad", "sad", "angry"]},
        "address": {"$ref": "#/$defs/Address"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}, "maxItems": 4},
        "email": {"anyOf": [{"type": "string", "maxLength": 40}, {"type": "null"}]},
    },
    "required": ["name", "age", "mood", "address", "tags", "email"],
    "additionalProperties": False,
    "$defs": {
        "Address": {
            "type": "object",
            "properties": {
                "street": {"type": "string", "maxLength": 40},
                "zip": {"type": "string", "pattern": "^\\d{5}$"},
            },
            "required": ["street", "zip"],
            "additionalProperties": False,
        }
    },
}
WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 40}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TEXT = json.dumps(
    {"name": "John Smith, the man who lives in Saint-Étienne", "age": 42, "tags": ["a", "long time ago"]},
    ensure_ascii=False,
)
FREE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
}


def person_faults(text: str) -> list[str]:
    """What is wrong with an answer; written out, so that it depends on no library."""
    try:
        person = json.loads(text)
        address = person["address"]
        checks = {
            "fields": list(person) == PERSON["required"] and list(address) == ["street", "zip"],
            "name": isinstance(person["name"], str) and len(person["name"]) <= 40,
            "age": type(person["age"]) is int and 0 <= person["age"] <= 120,
            "mood": person["mood"] in PERSON["properties"]["mood"]["enum"],
            "zip": len(address["zip"]) == 5 and address["zip"].isdigit(),
            "tags": len(person["tags"]) <= 4 and all(isinstance(tag, str) and len(tag) <= 20 for tag in person["tags"]),
            "email": person["email"] is None or len(person["email"]) <= 40,
        }
    except (ValueError, KeyError, TypeError) as error:
        return [repr(error)]
    return [name for name, holds in checks.items() if not holds]


def call_faults(message: dict[str, Any]) -> list[str]:
    calls = message.get("tool_calls") or []
    if not calls:
        return ["no call"]
    faults = []
    for call in calls:
        arguments = json.loads(call["function"]["arguments"])
        if call["function"]["name"] != "get_weather" or not isinstance(arguments.get("city"), str):
            faults.append(str(call))
        if arguments.get("unit", "celsius") not in ("celsius", "fahrenheit") or not arguments.keys() <= {
            "city",
            "unit",
        }:
            faults.append(str(call))
    return faults


def ask(client: httpx.Client, text: str, seed: int, **fields: object) -> dict[str, Any]:
    body = {
        "messages": [{"role": "user", "content": text}],
        "temperature": 1,
        "seed": seed,
        "max_tokens": 700,
        **fields,
    }
    reply = client.post("/v1/chat/completions", json=body)
    if reply.status_code != 200:
        raise SystemExit(reply.text)
    answer: dict[str, Any] = reply.json()
    return answer


def count_answers(client: httpx.Client, n: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "strict": True, "schema": PERSON}}
    valid, speeds = 0, []
    for seed in range(n):
        answer = ask(client, "Invent a person. Answer in JSON.", seed, response_format=wanted)
        text = answer["choices"][0]["message"]["content"]
        faults = person_faults(text)
        valid += not faults
        speeds.append(answer["hipfire"]["timings"]["decode_tok_s"])
        if faults:
            print(f"seed {seed}: {faults}: {text!r} ({answer['choices'][0]['finish_reason']})")
    free = [ask(client, "Invent a person.", seed, max_tokens=128) for seed in range(8)]
    free_speed = statistics.median(answer["hipfire"]["timings"]["decode_tok_s"] for answer in free)
    print(f"json_schema: {valid} of {n} valid, {statistics.median(speeds):.0f} tok/s; free text {free_speed:.0f} tok/s")


def count_calls(client: httpx.Client, n: int) -> None:
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER}}
    valid = 0
    for seed in range(n):
        answer = ask(client, "What is the weather in Oslo?", seed, tools=[tool], tool_choice="required")
        faults = call_faults(answer["choices"][0]["message"])
        valid += not faults
        if faults:
            print(f"seed {seed}: {faults}: {answer}")
    print(f"tool_choice required: {valid} of {n} with valid calls")


def measure_masks(path: Path) -> None:
    with open_checkpoint(path) as checkpoint:
        tokenizer = Tokenizer.from_metadata(checkpoint.metadata)
    start = time.process_time()
    vocabulary = vocabulary_of(tokenizer)
    told = time.process_time()
    table = TokenTable(unpack_tokens(vocabulary.lengths, vocabulary.data), end_ids=vocabulary.end_ids)
    built = time.process_time()
    print(f"{path.name}: {table.n_vocab} tokens, told in {told - start:.2f} s, table in {built - told:.2f} s")
    rules = Rules(LiteralMatcher(tokenizer.control_texts).split)
    body = rules.json(FREE, strict=True)
    kinds = {"JSON": (body, TEXT), "reasoning": (f"{rules.until('</think>')} {body}", f"Let me think.\n</think>{TEXT}")}
    for kind, (start_rule, text) in kinds.items():
        start = time.process_time()
        constraint = table.constrain(rules.grammar(start_rule))
        compiled_ms = 1000 * (time.process_time() - start)
        costs = []
        for token in tokenizer.encode(text, parse_control=True):
            start = time.process_time()
            constraint.allowed()
            constraint.accept(token)
            costs.append(1e6 * (time.process_time() - start))
        assert constraint.is_complete
        print(
            f"  {kind}: compiled in {compiled_ms:.1f} ms; a token {statistics.mean(costs):.0f} µs in the mean, "
            f"{statistics.median(costs):.0f} in the median, {max(costs):.0f} at most ({len(costs)} tokens)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:11435")
    parser.add_argument("--answers", type=int, default=50)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--masks", type=Path, metavar="MODEL.gguf", help="measure masks instead")
    options = parser.parse_args()
    if options.masks is not None:
        measure_masks(options.masks)
        return
    with httpx.Client(base_url=options.url, timeout=600) as client:
        count_answers(client, options.answers)
        count_calls(client, options.calls)


if __name__ == "__main__":
    main()
