import re
from pathlib import Path

from hipfire.catalog.model_layers import given_layers
from hipfire.catalog.registry import load_registry
from hipfire.catalog.store import InstalledModel
from hipfire.config.schema import SETTINGS, Settings


def test_every_card_is_whole() -> None:
    registry = load_registry()
    names = [name for card in registry.cards.values() for name in (card.tag, *card.aliases)]
    assert len(set(names)) == len(names)
    for card in registry.cards.values():
        assert re.fullmatch(r"[0-9a-f]{64}", card.sha256)
        assert card.parts
        assert card.file.endswith(".gguf")
        assert "/" not in card.file


def test_every_card_recommends_settings_that_exist_and_fit() -> None:
    for card in load_registry().cards.values():
        (layer,) = given_layers(InstalledModel(tag=card.tag, path=Path(card.file), card=card))
        assert set(Settings().with_layer(layer).sources) == set(card.settings)
        assert all(SETTINGS[key].per_model for key in layer)


def test_a_card_is_found_by_tag_and_alias() -> None:
    registry = load_registry()
    card = registry.find("smollm2:135m")
    assert card is not None
    assert registry.find("smollm2") is card
    assert registry.find("smollm") is None


def test_a_misspelt_name_gets_the_nearest_tag() -> None:
    assert load_registry().nearest("smolm2:135") == "smollm2:135m"
    assert load_registry().nearest("qqq") is None
