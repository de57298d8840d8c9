"""Outputs of every family, and what is in them."""

import json
from typing import Any

import pytest
from markup_reading import Reading, cut, read
from reference_data import FIXTURES

from hipfire.text.dialects.families import FAMILIES, PLAIN, family_of

SAMPLES: list[dict[str, Any]] = json.loads((FIXTURES / "markup" / "samples.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("n_per_piece", [1, 2, 7, 10_000])
@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{sample['model']}: {sample['note']}" for sample in SAMPLES])
def test_a_sample(sample: dict[str, Any], n_per_piece: int) -> None:
    family = family_of(card=sample["family"], architecture="", template="")
    begins_inside = family.begins_inside(sample["prompt_tail"])
    assert read(family, cut(sample["output"], n_per_piece), begins_inside=begins_inside) == Reading(
        reasoning=sample["reasoning"],
        text=sample["content"],
        calls=tuple((call["name"], call["arguments"]) for call in sample["tool_calls"]),
    )


def test_every_family_that_makes_calls_has_a_sample_of_one() -> None:
    shown = {sample["family"] for sample in SAMPLES if sample["tool_calls"]}
    assert {family.name for family in FAMILIES if family.has_calls} - shown <= {
        "qwen3-coder",  # writes as qwen3.5
        "hermes-thinking",  # writes as qwen3
        "deepseek-r1-switched",  # writes as deepseek-r1
    }


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.needles], ids=lambda family: family.name)
def test_a_family_is_told_by_its_template(family: Any) -> None:
    template = " ".join(family.needles)
    architecture = family.architectures[0] if family.architectures else "llama"
    assert family_of(card=None, architecture=architecture, template=template) is family


def test_a_family_without_needles_is_told_by_its_architecture() -> None:
    assert family_of(card=None, architecture="lfm2", template="").name == "lfm2"
    assert family_of(card=None, architecture="llama", template="") is PLAIN


def test_a_card_has_the_last_word() -> None:
    assert family_of(card="ornith1.5", architecture="qwen35", template="<function= <think>").name == "ornith1.5"
