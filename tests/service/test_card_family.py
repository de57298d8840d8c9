"""A card may name the family of its model, which comes before what the file tells."""

from pathlib import Path

import attrs
import pytest
from scripted_service import TINY, some_settings

from hipfire.catalog.registry import load_registry
from hipfire.catalog.store import InstalledModel
from hipfire.service.model_text import read_model_text
from hipfire.text.dialects.families import FAMILIES, PLAIN, family_of

STARTER = load_registry().cards["smollm2:135m"]


@pytest.mark.parametrize("family", ["ornith1.5", "qwen3", "plain"])
def test_a_card_s_family_is_the_model_s(tmp_path: Path, family: str) -> None:
    template = tmp_path / "any.jinja"
    template.write_text("<function= <think> {{ tools }}")
    model = InstalledModel(tag="tiny", path=TINY, card=attrs.evolve(STARTER, family=family))
    text = read_model_text(model, some_settings(prompt={"chat_template": str(template)}))
    assert text.family.name == family


def test_without_one_the_template_tells(tmp_path: Path) -> None:
    template = tmp_path / "any.jinja"
    template.write_text("<function= <think> {{ tools }}")
    model = InstalledModel(tag="tiny", path=TINY, card=attrs.evolve(STARTER, family=None))
    text = read_model_text(model, some_settings(prompt={"chat_template": str(template)}))
    assert text.family.name == "qwen3.5"


def test_every_card_names_a_family_that_is_there() -> None:
    names = {family.name for family in (*FAMILIES, PLAIN)} | {"ornith1.5"}
    for card in load_registry().cards.values():
        if card.family is not None:
            assert family_of(card=card.family, architecture="", template="").name in names
