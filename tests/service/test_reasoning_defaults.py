"""Settings about reasoning are wishes that a request overrides, axis by axis."""

from typing import Any

import pytest

from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.service.reasoning_defaults import with_defaults
from hipfire.service.request import ReasoningWishes


def with_set(values: dict[str, Any]) -> Settings:
    source = Source(Origin.GLOBAL, "config.toml:1")
    return Settings().replaced({key: Sourced(value, source) for key, value in values.items()})


def merged(request: dict[str, Any], settings: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """What is wished for, without the paths: `mode=True`, `effort="low"`, `cap=5`, `budget="med"` in the request."""
    wishes = ReasoningWishes(**{f"{name}s": (("field", value),) for name, value in request.items()})
    made = with_defaults(wishes, with_set(settings))
    found = {"mode": made.modes, "effort": made.efforts, "cap": made.caps, "budget": made.budgets}
    return {name: tuple(value for _, value in values) for name, values in found.items() if values}


@pytest.mark.parametrize(
    ("request_fields", "settings", "expected"),
    [
        ({}, {}, {}),
        ({}, {"thinking": "on"}, {"mode": (True,)}),
        ({}, {"thinking": "off"}, {"mode": (False,)}),
        ({"mode": True}, {"thinking": "off"}, {"mode": (True,)}),
        ({}, {"reasoning_effort": "low"}, {"effort": ("low",)}),
        ({}, {"reasoning_effort": "auto"}, {}),
        ({"effort": "max"}, {"reasoning_effort": "low"}, {"effort": ("max",)}),
        ({}, {"max_think_tokens": 5, "thinking_budget": "med"}, {"cap": (5,), "budget": ("med",)}),
        ({"cap": 7}, {"max_think_tokens": 5, "thinking_budget": "med"}, {"cap": (7,)}),
        ({"cap": 0}, {"max_think_tokens": 5, "thinking_budget": "med"}, {}),
        ({"budget": "low"}, {"max_think_tokens": 5}, {"budget": ("low",)}),
        ({"effort": "low"}, {"max_think_tokens": 5}, {"effort": ("low",), "cap": (5,)}),
        ({"mode": False}, {"thinking_budget": "low", "reasoning_effort": "low"}, {"mode": (False,)}),
        ({"mode": False}, {"max_think_tokens": 5}, {"mode": (False,)}),
        ({}, {"thinking": "off", "reasoning_effort": "low"}, {"mode": (False,), "effort": ("low",)}),
    ],
)
def test_a_request_comes_before_a_setting(
    request_fields: dict[str, Any], settings: dict[str, Any], expected: dict[str, tuple[Any, ...]]
) -> None:
    assert merged(request_fields, settings) == expected


def test_a_setting_is_told_from_a_field() -> None:
    settings = with_set({"reasoning_effort": "low"})
    ((path, _),) = with_defaults(ReasoningWishes(), settings).efforts
    assert path == "reasoning_effort (a setting)"
