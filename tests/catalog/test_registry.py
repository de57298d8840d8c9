import re
from pathlib import Path

from hipfire.catalog.model_layers import given_layers
from hipfire.catalog.registry import ARCHITECTURES, load_registry
from hipfire.catalog.store import InstalledModel
from hipfire.config.schema import SETTINGS, Settings
from hipfire.models.registry import ARCHITECTURES as ENGINE_ARCHITECTURES
from hipfire.text.dialects.families import family_of


def test_every_card_is_whole() -> None:
    registry = load_registry()
    names = [name for card in registry.cards.values() for name in (card.tag, *card.aliases)]
    assert len(set(names)) == len(names)
    files = [card.file for card in registry.cards.values() if card.file]
    assert len(set(files)) == len(files)
    for card in registry.cards.values():
        assert [bool(card.parts), card.hub is not None, card.note is not None].count(True) == 1
        if card.note is None:
            assert re.fullmatch(r"[^/]+\.gguf", card.file)
            assert card.memory_nbytes > card.nbytes
        if card.parts:
            assert re.fullmatch(r"[0-9a-f]{64}", card.sha256 or "")


def test_every_card_from_the_hub_names_files_that_become_its_own() -> None:
    for card in load_registry().cards.values():
        if card.hub is not None:
            assert re.fullmatch(r"[\w.-]+/[\w.-]+", card.hub.repo)
            assert card.hub.files[0].path.rsplit("/", 1)[-1] == card.file
            assert all(re.fullmatch(r"[0-9a-f]{64}", file.sha256) for file in card.hub.files if file.sha256 is not None)
            assert card.settings_source


def test_the_tags_of_the_first_registry_have_cards() -> None:
    tags = """
        qwen3.5:0.8b qwen3.5:2b qwen3.5:4b qwen3.5:9b qwen3.5:27b qwen3.5:35b-a3b qwen3.6:27b qwen3.6:35b-a3b
        qwen3.8:27b ornith-1.5:35b-a3b gemma4:31b deepseek-v4-flash muse-glimmer lfm2.5:350m lfm2.5:1.2b
        lfm2.5:1.2b-thinking lfm2.5:8b-a1b flux.schnell:1 flux2-klein:4b smollm2:135m
    """
    assert set(tags.split()) <= set(load_registry().cards)


def test_what_is_said_to_run_is_what_the_engine_has() -> None:
    assert set(ENGINE_ARCHITECTURES) == ARCHITECTURES
    runs = [card.tag for card in load_registry().cards.values() if card.runs]
    assert runs == ["smollm2:135m", "gemma3:270m"]


def test_every_card_s_family_is_one() -> None:
    for card in load_registry().cards.values():
        family_of(card=card.family, architecture="", template="")


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
