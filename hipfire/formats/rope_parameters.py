"""Rotary position settings of a Hugging Face config, translated to GGUF's keys.

transformers 5 has `rope_parameters`, for some models one for each type of layer; before it there were `rope_theta`
and `rope_scaling`. Knows no architecture.
"""

import math

import numpy as np
from numpy.typing import NDArray

from hipfire.errors import CorruptFile, UnsupportedFile
from hipfire.formats.checkpoint import MetaValue
from hipfire.formats.json_object import JsonObject
from hipfire.formats.mapped_file import DAMAGED

_DEFAULT_THETA = 10000.0


def rope_parameters(config: JsonObject, layer_type: str) -> JsonObject:
    """The settings that hold for layers of a type (`full_attention`), `rope_theta` among them."""
    parameters = config.child("rope_parameters")
    if parameters.values:
        return parameters.child(layer_type) if layer_type in parameters.values else parameters
    values = dict(config.child("rope_scaling").values)
    values["rope_theta"] = config.number("rope_theta", _DEFAULT_THETA)
    return JsonObject(path=config.path, values=values)


def theta(parameters: JsonObject) -> float:
    """The base of the frequencies."""
    return parameters.number("rope_theta", _DEFAULT_THETA)


def scaling_type(parameters: JsonObject) -> str:
    """`default`, `linear`, `yarn` or `llama3`. Raises UnsupportedFile for another."""
    kind = parameters.text("rope_type", parameters.text("type", "default"))
    if kind not in ("default", "linear", "yarn", "llama3"):
        raise UnsupportedFile(
            f"{parameters.path}: RoPE scaling of type {kind!r}", hint="default, linear, yarn and llama3 are supported"
        )
    return kind


def scaling_metadata(parameters: JsonObject, context_length: int) -> dict[str, MetaValue]:
    """The `{arch}.rope.scaling.*` keys, without `{arch}.rope.scaling.`. llama3 has none: see `frequency_factors`."""
    kind = scaling_type(parameters)
    if kind in ("default", "llama3"):
        return {}
    factor = parameters.number("factor")
    if kind == "linear":
        return {"type": "linear", "factor": factor}
    metadata: dict[str, MetaValue] = {
        "type": "yarn",
        "factor": factor,
        "original_context_length": parameters.integer("original_max_position_embeddings", context_length),
        "yarn_beta_fast": parameters.number("beta_fast", 32.0),
        "yarn_beta_slow": parameters.number("beta_slow", 1.0),
    }
    attention_factor = _yarn_attention_factor(parameters, factor)
    if attention_factor is not None:
        # GGUF has what is to be multiplied to the usual factor, Hugging Face what is to replace it.
        metadata["attn_factor"] = attention_factor / _yarn_magnitude(factor, 1.0)
    return metadata


def frequency_factors(parameters: JsonObject, n_rot: int) -> NDArray[np.float32] | None:
    """GGUF's `rope_freqs.weight` [n_rot / 2] for llama3 scaling, by which frequencies are divided; else None.

    Wavelengths under original_context / high_freq_factor stay, those over original_context / low_freq_factor are
    stretched by `factor`, between them there is a smooth passage (Llama 3.1's `apply_scaling`).
    """
    if scaling_type(parameters) != "llama3":
        return None
    factor = parameters.number("factor")
    low, high = parameters.number("low_freq_factor"), parameters.number("high_freq_factor")
    original = parameters.integer("original_max_position_embeddings")
    if low >= high:
        raise CorruptFile(
            f"{parameters.path}: low_freq_factor {low} is not under high_freq_factor {high}", hint=DAMAGED
        )
    frequencies = theta(parameters) ** -(np.arange(0, n_rot, 2) / n_rot)
    wavelengths = 2 * math.pi / frequencies
    kept = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    return (1.0 / (kept + (1.0 - kept) / factor)).astype(np.float32)


def _yarn_attention_factor(parameters: JsonObject, factor: float) -> float | None:
    """What the config wants instead of the usual 0.1 * ln(factor) + 1."""
    if parameters.get("attention_factor") is not None:
        return parameters.number("attention_factor")
    if parameters.get("mscale") is None or parameters.get("mscale_all_dim") is None:
        return None
    mscale, all_dim = parameters.number("mscale"), parameters.number("mscale_all_dim")
    return _yarn_magnitude(factor, mscale) / _yarn_magnitude(factor, all_dim)


def _yarn_magnitude(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1.0 else 0.1 * mscale * math.log(factor) + 1.0
