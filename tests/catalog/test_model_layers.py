import struct
from pathlib import Path

import attrs
import gguf_writer
import pytest

from hipfire.catalog.model_layers import file_layer, given_layers
from hipfire.catalog.registry import load_registry
from hipfire.catalog.store import InstalledModel
from hipfire.config.own_models import OwnModel
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.formats.open import open_checkpoint

TINY = Path(__file__).parents[2] / "fixtures" / "tiny-llama" / "model.gguf"


def test_a_gguf_file_recommends_sampling(tmp_path: Path) -> None:
    f32, i32 = gguf_writer.F32, gguf_writer.I32
    entries = [
        gguf_writer.entry(f"general.sampling.{name}", kind, gguf_writer.scalar(kind, value))
        for name, kind, value in [
            ("temp", f32, 0.6),
            ("top_k", i32, 40),
            ("top_p", f32, 0.95),
            ("min_p", f32, 0.05),
            ("penalty_repeat", f32, 1.1),
        ]
    ]
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_writer.with_entries(TINY.read_bytes(), entries))
    with open_checkpoint(path) as checkpoint:
        layer = file_layer(checkpoint.metadata, place="there")
    assert {key: value.value for key, value in layer.items()} == {
        "generation.temperature": 0.6,
        "generation.top_k": 40,
        "generation.top_p": 0.95,
        "generation.min_p": 0.05,
        "generation.repeat_penalty": 1.1,
    }
    assert {value.source for value in layer.values()} == {Source(Origin.MODEL_FILE, "there")}


@pytest.mark.parametrize("value", ["warm", True, -1.0, float("nan"), [0.5]])
def test_what_no_setting_can_be_is_left_out(value: float | str | list[float]) -> None:
    metadata = {
        "general.sampling.temp": value,
        "general.sampling.top_p": struct.unpack("<f", struct.pack("<f", 0.9))[0],
    }
    assert {key: sourced.value for key, sourced in file_layer(metadata, place="").items()} == {"generation.top_p": 0.9}


def test_a_table_beats_the_card_beats_the_file() -> None:
    card = attrs.evolve(
        load_registry().cards["smollm2:135m"], settings={"generation.top_k": 2, "generation.top_p": 0.2}
    )
    own = OwnModel(
        name=card.tag, place="", settings={"generation.top_k": Sourced(3, Source(Origin.MODEL, "models.toml:1"))}
    )
    model = InstalledModel(tag=card.tag, path=TINY, card=card, own=own)
    settings = Settings()
    for layer in given_layers(model):
        settings = settings.with_layer(layer)
    settings = settings.with_layer(
        file_layer(
            {f"general.sampling.{name}": 0.1 for name in ("top_p", "min_p")} | {"general.sampling.top_k": 1}, place=""
        )
    )
    generation = settings.generation
    assert (generation.top_k, generation.top_p, generation.min_p) == (3, 0.2, 0.1)
