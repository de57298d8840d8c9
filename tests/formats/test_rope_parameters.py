import math
from pathlib import Path

import numpy as np
import pytest

from hipfire.errors import CorruptFile, UnsupportedFile
from hipfire.formats.json_object import JsonObject
from hipfire.formats.rope_parameters import frequency_factors, rope_parameters, scaling_metadata, theta

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config(**values: object) -> JsonObject:
    return JsonObject(path=Path("config.json"), values=values)


def parameters(**values: object) -> JsonObject:
    """What the config of transformers 5 says for its full layers."""
    return rope_parameters(config(rope_parameters=values), "full_attention")


@pytest.mark.parametrize(
    "values",
    [
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 5e5, "factor": 8.0}},
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "rope_theta": 5e5, "factor": 8.0}}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 8.0}},
    ],
    ids=["transformers 5", "by layer type", "transformers 4", "older"],
)
def test_every_place_where_configs_have_it(values: dict[str, object]) -> None:
    found = rope_parameters(config(**values), "full_attention")
    assert theta(found) == 5e5
    assert scaling_metadata(found, 4096) == {"type": "linear", "factor": 8.0}
    assert frequency_factors(found, 64) is None


@pytest.mark.parametrize("values", [{}, {"rope_scaling": None}, {"rope_parameters": {"rope_type": "default"}}])
def test_no_scaling(values: dict[str, object]) -> None:
    found = rope_parameters(config(**values), "full_attention")
    assert theta(found) == 10000.0
    assert scaling_metadata(found, 4096) == {}


def test_layer_types_have_their_own() -> None:
    values = config(rope_parameters={"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}})
    assert theta(rope_parameters(values, "full_attention")) == 1e6
    assert theta(rope_parameters(values, "sliding_attention")) == 1e4


def test_yarn() -> None:
    assert scaling_metadata(parameters(rope_type="yarn", factor=4.0), 32768) == {
        "type": "yarn",
        "factor": 4.0,
        "original_context_length": 32768,
        "yarn_beta_fast": 32.0,
        "yarn_beta_slow": 1.0,
    }


def test_yarn_attention_factor_is_relative_to_the_usual_one() -> None:
    usual = 0.1 * math.log(4.0) + 1
    found = scaling_metadata(parameters(rope_type="yarn", factor=4.0, attention_factor=1.0), 32768)
    assert found["attn_factor"] == pytest.approx(1 / usual)
    found = scaling_metadata(parameters(rope_type="yarn", factor=4.0, mscale=1.0, mscale_all_dim=1.0), 32768)
    assert found["attn_factor"] == pytest.approx(1 / usual)


def test_llama3_divides_frequencies_as_the_original_does() -> None:
    """Llama 3.1's own formula, pair by pair."""
    factors = frequency_factors(parameters(rope_theta=5e5, **LLAMA3), 128)
    assert factors is not None
    assert factors.dtype == np.float32
    for i, factor in enumerate(factors.tolist()):
        frequency = 5e5 ** (-2 * i / 128)
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            scaled = frequency
        elif wavelength > 8192 / 1:
            scaled = frequency / 8
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            scaled = (1 - smooth) * frequency / 8 + smooth * frequency
        assert frequency / factor == pytest.approx(scaled, rel=1e-6)
    assert factors[0] == 1
    assert factors[-1] == 8
    assert scaling_metadata(parameters(**LLAMA3), 131072) == {}


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "made-up"])
def test_unknown_scaling_is_refused(kind: str) -> None:
    with pytest.raises(UnsupportedFile, match=kind):
        scaling_metadata(parameters(rope_type=kind, factor=2.0), 4096)


@pytest.mark.parametrize("change", [{"factor": None}, {"factor": 0}, {"factor": "8"}, {"high_freq_factor": 1.0}])
def test_nonsense_is_refused(change: dict[str, object]) -> None:
    with pytest.raises(CorruptFile):
        frequency_factors(parameters(**LLAMA3 | change), 64)
