"""Mode, effort and cap by family: the table of the contract, a row at a time."""

import logging
from typing import Any

import pytest

from hipfire.service.reasoning import ReasoningPlan, plan_reasoning
from hipfire.service.request import ReasoningWishes
from hipfire.text.dialects.families import family_of


def plan(family: str, **wishes: Any) -> ReasoningPlan:
    """`mode=True`, `effort="low"`, `cap=5`, `budget="med"`, each as a field of that name."""
    fields = {f"{name}s": ((name, value),) for name, value in wishes.items()}
    return plan_reasoning(ReasoningWishes(**fields), family_of(card=family, architecture="", template=""), model="it")


def in_force(family: str, **wishes: Any) -> tuple[str, str | None, int | None]:
    made = plan(family, **wishes).in_force
    assert made is not None
    return made.mode, made.effort, made.cap


@pytest.mark.parametrize(
    ("family", "wishes", "mode", "effort", "cap", "n_warnings"),
    [
        ("qwen3.8", {}, "on", "xhigh", None, 0),
        ("qwen3.8", {"effort": "low"}, "on", "low", None, 0),
        ("qwen3.8", {"effort": "medium"}, "on", "medium", None, 0),
        ("qwen3.8", {"effort": "high"}, "on", "xhigh", None, 1),
        ("qwen3.8", {"effort": "max"}, "on", "xhigh", None, 1),
        ("qwen3.8", {"effort": "minimal"}, "on", "xhigh", None, 1),
        ("qwen3.8", {"cap": 100}, "on", "xhigh", 100, 0),
        ("qwen3.8", {"budget": "low"}, "on", "xhigh", None, 1),
        ("qwen3.8", {"mode": False}, "off", None, None, 0),
        ("ornith1.5", {"effort": "max"}, "on", "xhigh", None, 1),
        ("qwen3.5", {}, "on", None, None, 0),
        ("qwen3.5", {"effort": "low"}, "on", None, None, 1),
        ("qwen3.5", {"cap": 7}, "on", None, 7, 0),
        ("qwen3", {"budget": "med"}, "on", None, 2048, 0),
        ("qwen3", {"budget": "uncapped"}, "on", None, None, 0),
        ("qwen3", {"cap": 7, "budget": "max"}, "on", None, 7, 1),
        ("qwen3", {"mode": False, "effort": "low", "cap": 7}, "off", None, None, 2),
        ("deepseek-v4", {}, "on", None, None, 0),
        ("deepseek-v4", {"effort": "xhigh"}, "on", "high", None, 1),
        ("deepseek-v4", {"effort": "max"}, "on", "max", None, 0),
        ("deepseek-v4", {"cap": 5}, "on", None, None, 1),
        ("gemma4", {}, "off", None, None, 0),
        ("gemma4", {"mode": True, "effort": "low", "cap": 5}, "on", None, None, 2),
        ("glimmer", {"mode": False, "effort": "xhigh", "cap": 5}, "on", "xhigh", None, 2),
        ("gpt-oss", {}, "on", "medium", None, 0),
        ("lfm2.5-thinking", {"mode": False, "effort": "low", "cap": 5}, "on", None, 5, 2),
        ("lfm2.5-thinking", {"budget": "low"}, "on", None, None, 1),
        ("plain", {"mode": True, "effort": "low", "cap": 5, "budget": "low"}, "off", None, None, 4),
    ],
)
def test_what_is_in_force(
    family: str, wishes: dict[str, Any], mode: str, effort: str | None, cap: int | None, n_warnings: int
) -> None:
    assert in_force(family, **wishes) == (mode, effort, cap)
    assert len(plan(family, **wishes).warnings) == n_warnings


def test_off_wins_where_fields_disagree() -> None:
    wishes = ReasoningWishes(modes=(("thinking", True), ("chat_template_kwargs.enable_thinking", False)))
    made = plan_reasoning(wishes, family_of(card="qwen3", architecture="", template=""), model="it").in_force
    assert made is not None
    assert made.mode == "off"


def test_the_template_is_told_in_the_family_s_own_words() -> None:
    assert plan("deepseek-v4", mode=False).arguments == {"thinking": False}
    assert plan("qwen3.8", effort="low").arguments == {"enable_thinking": True, "reasoning_effort": "low"}
    assert plan("lfm2.5-thinking").arguments == {}


def test_a_model_that_does_not_reason_has_nothing_to_tell() -> None:
    assert plan("plain").in_force is None


def test_a_warning_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        (warning,) = plan("plain", effort="low").warnings
    assert caplog.messages == [f"[WARN: INVALID CONFIG] {warning}"]
    assert warning.startswith("effort: ")
