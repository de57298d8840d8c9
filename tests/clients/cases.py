"""What the Python clients ask, and how they report: JSON in, JSON out."""

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

ANSWER = "What is the capital of France?"
OBJECT_QUESTION = "Make up a person."
TOOLS_QUESTION = "What is the weather in Montréal for 3 days?"

WEATHER: dict[str, Any] = {
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city", "days"],
        "additionalProperties": False,
    },
}
TOOL: dict[str, Any] = {"type": "function", "function": WEATHER}

Case = Callable[[str, str], Mapping[str, Any]]
"""Asks the server at this address for this model."""


def weather(given: Mapping[str, Any], calls: list[Mapping[str, Any]]) -> str:
    """The tool itself: notes what it was called with."""
    calls.append(given)
    return f"SUNNY in {given['city']}"


def main(cases: Mapping[str, Case]) -> None:
    """The program's one argument is a list of [case, address, model]; it prints a list of what each reports."""
    print(json.dumps([cases[name](url, model) for name, url, model in json.loads(sys.argv[1])]))  # noqa: T201
