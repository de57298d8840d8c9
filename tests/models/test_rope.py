"""RoPE scaling kinds as GGUF files ask for them. transformers' own logits check them too: test_small_models."""

import math

import attrs
import numpy as np
import pytest
from devices.random_model import RandomModel

from hipfire.dtypes import DTYPES
from hipfire.errors import CorruptFile
from hipfire.formats.checkpoint import MetaValue, Tensor
from hipfire.models.reader import Reader
from hipfire.models.rope import Rotation, read_rotation

N_ROT = 8
PLAIN = 10000.0 ** (-np.arange(4) / 4)
CHECKPOINT = RandomModel(n_layers=1).checkpoint()


def read(divisors: list[float] | None = None, **settings: MetaValue) -> Rotation:
    """The rotation of a model with these `rope.*` keys; dots are written as two underscores."""
    metadata = {f"llama.rope.{key.replace('__', '.')}": value for key, value in settings.items()}
    tensors = dict(CHECKPOINT.tensors)
    if divisors is not None:
        data = np.array(divisors, np.float32)
        name = "rope_freqs.weight"
        tensors[name] = Tensor(name=name, dtype=DTYPES["f32"], shape=data.shape, data=data.view(np.uint8))
    changed = attrs.evolve(
        CHECKPOINT, metadata=dict(CHECKPOINT.metadata) | metadata, tensors=tensors, close=lambda: None
    )
    return read_rotation(Reader(checkpoint=changed), N_ROT)


def assert_turns(rotation: Rotation, expected: np.ndarray, *, scale: float = 1.0) -> None:
    assert rotation.inverse_frequencies.dtype == np.float32
    np.testing.assert_allclose(rotation.inverse_frequencies, expected, rtol=1e-6)
    assert rotation.scale == pytest.approx(scale)


def test_no_scaling() -> None:
    assert_turns(read(), PLAIN)
    assert_turns(read(scaling__factor=0.0), PLAIN)
    assert_turns(read(scaling__type="none", scaling__factor=4.0), PLAIN)


def test_linear_is_what_a_factor_without_a_type_means() -> None:
    assert_turns(read(scaling__type="linear", scaling__factor=4.0), PLAIN / 4)
    assert_turns(read(scaling__factor=4.0), PLAIN / 4)
    assert_turns(read(scale_linear=2.0), PLAIN / 2)


def test_divisors_of_llama3() -> None:
    assert_turns(read([1, 2, 4, 8]), PLAIN / [1, 2, 4, 8])


@pytest.mark.parametrize("divisors", [[1, 0, 1, 1], [1, -2, 1, 1], [1, math.nan, 1, 1], [1, math.inf, 1, 1]])
def test_divisors_that_make_no_sense(divisors: list[float]) -> None:
    with pytest.raises(CorruptFile, match=r"rope_freqs\.weight"):
        read(divisors)


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("factor", [1e-300, 1e-310])
def test_a_factor_that_leaves_float32(kind: str, factor: float) -> None:
    with pytest.raises(CorruptFile, match="infinitely fast"):
        read(scaling__type=kind, scaling__factor=factor)


def test_too_few_divisors() -> None:
    with pytest.raises(CorruptFile, match=r"rope_freqs\.weight has shape 3, not 4"):
        read([1, 1, 1])


def test_yarn_keeps_fast_pairs_and_slows_slow_ones() -> None:
    """Within 1024 tokens the pairs turn 163, 16, 1.6 and 0.16 times; 32 turns are kept, 1 and less interpolated."""
    rotation = read(scaling__type="yarn", scaling__factor=4.0, scaling__original_context_length=1024)
    # The bounds fall on pairs: turns(i) = 1024 / (2 pi) * 10 ** -i, so 0.7 -> 0 and 2.2 -> 3.
    kept = np.array([1, 2 / 3, 1 / 3, 0])
    assert_turns(rotation, PLAIN * kept + PLAIN / 4 * (1 - kept), scale=0.1 * math.log(4) + 1)


def test_yarn_with_everything_set() -> None:
    rotation = read(
        scaling__type="yarn",
        scaling__factor=4.0,
        scaling__original_context_length=1024,
        scaling__attn_factor=0.5,
        scaling__yarn_attn_factor=3.0,
        scaling__yarn_log_multiplier=0.5,
        scaling__yarn_beta_fast=1000.0,
        scaling__yarn_beta_slow=200.0,
        scaling__yarn_ext_factor=0.5,
    )
    # Every pair turns less than 200 times; the bounds are -1 and 0, so pair 0 is past them as well.
    scale = 0.5 * 3.0 * (0.1 * math.log(4) + 1) / (0.05 * math.log(4) + 1)
    ramp = np.clip((np.arange(4) - 0) / 0.001, 0, 1)
    kept = (1 - ramp) * 0.5
    assert_turns(rotation, PLAIN * kept + PLAIN / 4 * (1 - kept), scale=scale)


def test_yarn_without_an_original_length_takes_the_trained_one() -> None:
    by_default = read(scaling__type="yarn", scaling__factor=4.0)
    spelled_out = read(scaling__type="yarn", scaling__factor=4.0, scaling__original_context_length=512)
    assert_turns(by_default, spelled_out.inverse_frequencies, scale=spelled_out.scale)
