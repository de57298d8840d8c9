"""A Hugging Face model directory (config.json and safetensors) as a Checkpoint: `open_huggingface`.

Names and values become GGUF's. One row of ARCHITECTURES says how, for each class of `transformers`.
Knows no tokenizer: the metadata has no `tokenizer.*` keys.
"""

import re
import reprlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.dtypes import DTYPES, dequantize
from hipfire.errors import CorruptFile, NotAModelFile, UnsupportedFile
from hipfire.formats import rope_parameters as rope
from hipfire.formats.checkpoint import Checkpoint, MetaValue, Tensor
from hipfire.formats.json_object import JsonObject
from hipfire.formats.mapped_file import DAMAGED, MappedFile
from hipfire.formats.safetensors import read_safetensors

_MAX_CONFIG_NBYTES = 4 << 20
_MAX_INDEX_NBYTES = 32 << 20
_MAX_LAYERS = 1 << 16
_MAX_HEAD_DIM = 1 << 16
_LAYER = re.compile(r"model\.layers\.(?P<layer>0|[1-9]\d{0,5})\.(?P<part>.+)\.(?P<suffix>weight|bias)")
_GLOBALS = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
# Old checkpoints hold a table that follows from the config.
_IGNORED = ".rotary_emb.inv_freq"

_ATTENTION_AND_FFN = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


@attrs.frozen(kw_only=True)
class Architecture:
    """How one class of `transformers` maps to GGUF."""

    name: str
    """GGUF's general.architecture."""
    parts: Mapping[str, str]
    """GGUF's names of the parts of a layer."""
    metadata: Callable[[JsonObject], dict[str, MetaValue]]
    """The keys beyond `_common_metadata`, without the architecture's prefix."""
    tied: bool
    """Whether output and embedding are one where the config does not say."""
    allowed: Mapping[str, tuple[object, ...]]
    """The values of settings that change what is computed and that GGUF has no key for."""
    norms_add_one: bool = False
    """Whether norm weights are stored as w for 1 + w, which is what GGUF stores."""


def open_huggingface(path: Path) -> Checkpoint:
    """Open a directory. Raises NotAModelFile, TruncatedFile, CorruptFile, UnsupportedFile, ModelNotFound.

    Tensor data is mapped, not read, but for the norms that have to be changed.
    """
    if not (path / "config.json").is_file():
        raise NotAModelFile(
            f"{path} has no config.json", hint="give a .gguf file or the directory of a Hugging Face model"
        )
    config = JsonObject.from_file(path / "config.json", most_nbytes=_MAX_CONFIG_NBYTES)
    architecture = _architecture(config)
    metadata = _metadata(config, architecture, path.name) | _recommended_sampling(path / "generation_config.json")
    with ExitStack() as cleanup:
        files = [_opened(name, cleanup) for name in _shards(path)]
        tensors = _tensors(files, config, architecture)
        closing = cleanup.pop_all()

    def close() -> None:
        tensors.clear()
        closing.close()

    return Checkpoint(
        path=path,
        architecture=architecture.name,
        metadata=metadata,
        tensors=tensors,
        nbytes=sum(file.nbytes for file in files),
        rope_interleaved=False,
        files=files,
        close=close,
    )


def _architecture(config: JsonObject) -> Architecture:
    names = config.texts("architectures")
    for name in names:
        if name in ARCHITECTURES:
            break
    else:
        raise UnsupportedFile(
            f"{config.path}: no support for {', '.join(names)}", hint=f"supported are {', '.join(ARCHITECTURES)}"
        )
    for key, values in ARCHITECTURES[name].allowed.items():
        if key in config.values and config.get(key) not in values:
            raise UnsupportedFile(f"{config.path}: {name} with {key!r} of {reprlib.repr(config.get(key))}")
    if config.get("quantization_config") is not None:
        raise UnsupportedFile(
            f"{config.path}: quantised weights in a Hugging Face directory", hint="use the model's GGUF file"
        )
    return ARCHITECTURES[name]


def _head_dim(config: JsonObject) -> int:
    default = config.integer("hidden_size") // config.integer("num_attention_heads")
    return config.integer("head_dim", default, most=_MAX_HEAD_DIM)


def _n_rot(config: JsonObject) -> int:
    partial = rope.rope_parameters(config, "full_attention").number("partial_rotary_factor", 1.0)
    share = config.number("partial_rotary_factor", partial)
    if share > 1:
        raise CorruptFile(f"{config.path}: 'partial_rotary_factor' is {share}, not up to 1", hint=DAMAGED)
    return int(_head_dim(config) * share)


def _metadata(config: JsonObject, architecture: Architecture, name: str) -> dict[str, MetaValue]:
    full = rope.rope_parameters(config, "full_attention")
    context_length = config.integer("max_position_embeddings")
    values: dict[str, MetaValue] = {
        "vocab_size": config.integer("vocab_size"),
        "context_length": context_length,
        "block_count": config.integer("num_hidden_layers", most=_MAX_LAYERS),
        "embedding_length": config.integer("hidden_size"),
        "feed_forward_length": config.integer("intermediate_size"),
        "attention.head_count": config.integer("num_attention_heads"),
        "attention.head_count_kv": config.integer("num_key_value_heads", config.integer("num_attention_heads")),
        "attention.key_length": _head_dim(config),
        "attention.value_length": _head_dim(config),
        "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps", 1e-6),
        "rope.freq_base": rope.theta(full),
        "rope.dimension_count": _n_rot(config),
    }
    values |= {f"rope.scaling.{key}": value for key, value in rope.scaling_metadata(full, context_length).items()}
    values |= architecture.metadata(config)
    prefixed = {f"{architecture.name}.{key}": value for key, value in values.items()}
    return {"general.architecture": architecture.name, "general.name": name, **prefixed}


_SAMPLING = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repetition_penalty": "penalty_repeat",
}


def _recommended_sampling(path: Path) -> dict[str, MetaValue]:
    """What the file says of sampling, by GGUF's keys; nothing where there is no file, or other than a number."""
    if not path.is_file():
        return {}
    config = JsonObject.from_file(path, most_nbytes=_MAX_CONFIG_NBYTES)
    return {
        f"general.sampling.{name}": value
        for key, name in _SAMPLING.items()
        if isinstance(value := config.get(key), int | float)
    }


def _llama_metadata(config: JsonObject) -> dict[str, MetaValue]:
    """Mistral 7B v0.1 has a window in every layer; later ones and Llama say null."""
    if config.get("sliding_window") is None:
        return {}
    return {"attention.sliding_window": config.integer("sliding_window")}


def _gemma3_metadata(config: JsonObject) -> dict[str, MetaValue]:
    """Gemma 3 alternates layers with a window and layers without, each with a rotary base of its own."""
    n_layers = config.integer("num_hidden_layers", most=_MAX_LAYERS)
    if config.get("layer_types") is not None:
        windowed = [kind == "sliding_attention" for kind in config.texts("layer_types")]
        if len(windowed) != n_layers:
            raise CorruptFile(f"{config.path}: {len(windowed)} layer_types for {n_layers} layers", hint=DAMAGED)
    else:
        period = config.integer("sliding_window_pattern", 6)
        windowed = [(layer + 1) % period != 0 for layer in range(n_layers)]
    local = rope.theta(rope.rope_parameters(config, "sliding_attention"))
    if not config.child("rope_parameters").values:
        local = config.number("rope_local_base_freq", 10000.0)
    return {
        "attention.sliding_window": config.integer("sliding_window"),
        "attention.sliding_window_pattern": windowed,
        "attention.scale": config.number("query_pre_attn_scalar", 256.0) ** -0.5,
        "rope.freq_base_swa": local,
    }


def _shards(path: Path) -> list[Path]:
    """The safetensors files: those that the index names, or the only one."""
    index_path = path / "model.safetensors.index.json"
    if not index_path.is_file():
        return [path / "model.safetensors"]
    index = JsonObject.from_file(index_path, most_nbytes=_MAX_INDEX_NBYTES).child("weight_map")
    names = sorted({index.text(tensor) for tensor in index.values})
    for name in names:
        if name in ("", ".", "..") or Path(name).name != name:
            raise CorruptFile(f"{index_path} names a file outside of its directory: {name!r}", hint=DAMAGED)
    if not names:
        raise CorruptFile(f"{index_path} names no files", hint=DAMAGED)
    return [path / name for name in names]


def _opened(path: Path, cleanup: ExitStack) -> MappedFile:
    file = MappedFile(path)
    cleanup.callback(file.close)
    return file


def _tensors(files: list[MappedFile], config: JsonObject, architecture: Architecture) -> dict[str, Tensor]:
    """All tensors by GGUF's names, in GGUF's values; no `output.weight` where it is the embedding."""
    tensors: dict[str, Tensor] = {}
    for file in files:
        for tensor in read_safetensors(file).values():
            if tensor.name.endswith(_IGNORED):
                continue
            name = _gguf_name(tensor.name, architecture, file.path)
            if name in tensors:
                raise CorruptFile(f"{file.path}: another file has a tensor {tensor.name!r} too", hint=DAMAGED)
            tensors[name] = _canonical(tensor, name, architecture)
    if config.flag("tie_word_embeddings", architecture.tied):
        tensors.pop("output.weight", None)
    elif "output.weight" not in tensors:
        raise CorruptFile(f"{config.path.parent} has no lm_head.weight", hint="download the whole model again")
    factors = rope.frequency_factors(rope.rope_parameters(config, "full_attention"), _n_rot(config))
    if factors is not None:
        tensors["rope_freqs.weight"] = _computed("rope_freqs.weight", factors)
    return tensors


def _gguf_name(name: str, architecture: Architecture, path: Path) -> str:
    match = _LAYER.fullmatch(name)
    if match is not None and match["part"] in architecture.parts:
        return f"blk.{match['layer']}.{architecture.parts[match['part']]}.{match['suffix']}"
    if name not in _GLOBALS:
        raise UnsupportedFile(f"{path}: {architecture.name} has no tensor {name!r} that this build knows")
    return _GLOBALS[name]


def _canonical(tensor: Tensor, name: str, architecture: Architecture) -> Tensor:
    if architecture.norms_add_one and name.endswith("norm.weight"):
        return _computed(name, 1 + dequantize(tensor.data, tensor.dtype, tensor.shape))
    return attrs.evolve(tensor, name=name)


def _computed(name: str, values: NDArray[np.float32]) -> Tensor:
    data = values.reshape(-1).view(np.uint8)
    data.setflags(write=False)
    return Tensor(name=name, dtype=DTYPES["f32"], shape=values.shape, data=data)


_LLAMA = Architecture(
    name="llama",
    parts=_ATTENTION_AND_FFN | {"post_attention_layernorm": "ffn_norm"},
    metadata=_llama_metadata,
    tied=False,
    allowed={"hidden_act": ("silu",)},
)

ARCHITECTURES = {
    "LlamaForCausalLM": _LLAMA,
    "MistralForCausalLM": _LLAMA,
    "Gemma3ForCausalLM": Architecture(
        name="gemma3",
        parts=_ATTENTION_AND_FFN
        | {
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
        },
        metadata=_gemma3_metadata,
        tied=True,
        allowed={
            "hidden_activation": ("gelu_pytorch_tanh",),
            "attn_logit_softcapping": (None,),
            "final_logit_softcapping": (None,),
            "use_bidirectional_attention": (None, False),
        },
        norms_add_one=True,
    ),
}
