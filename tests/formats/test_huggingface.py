import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from hipfire.dtypes import dequantize
from hipfire.errors import CorruptFile, ModelFileError, ModelNotFound, NotAModelFile, UnsupportedFile
from hipfire.formats.checkpoint import Tensor
from hipfire.formats.gguf import open_gguf
from hipfire.formats.huggingface import open_huggingface

FIXTURES = Path(__file__).parents[2] / "fixtures"
LLAMA, GEMMA3 = FIXTURES / "tiny-llama", FIXTURES / "tiny-gemma3"


def values(tensor: Tensor) -> np.ndarray:
    return dequantize(tensor.data, tensor.dtype, tensor.shape)


def changed(source: Path, folder: Path, **changes: object) -> Path:
    """A copy of a model with another config; a change to None takes the setting away."""
    config = json.loads((source / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    shutil.copy(source / "model.safetensors", folder)
    return folder


def test_llama_says_the_same_as_its_gguf() -> None:
    with open_huggingface(LLAMA) as checkpoint, open_gguf(LLAMA / "model.gguf") as expected:
        assert checkpoint.architecture == expected.architecture
        assert not checkpoint.rope_interleaved
        settings = {key: value for key, value in expected.metadata.items() if key.startswith("llama.")}
        assert (
            settings.items() <= {k: pytest.approx(v) for k, v in checkpoint.metadata.items() if k in settings}.items()
        )
        assert checkpoint.metadata["llama.attention.key_length"] == 16
        assert set(checkpoint.tensors) == set(expected.tensors)
        for name, tensor in checkpoint.tensors.items():
            assert tensor.name == name
            assert tensor.shape == expected.tensors[name].shape
            if not name.endswith(("attn_q.weight", "attn_k.weight")):
                assert np.array_equal(values(tensor), values(expected.tensors[name]))


def test_gemma3() -> None:
    source = load_file(GEMMA3 / "model.safetensors")
    with open_huggingface(GEMMA3) as checkpoint:
        assert checkpoint.architecture == "gemma3"
        assert {k: v for k, v in checkpoint.metadata.items() if k.startswith(("gemma3.att", "gemma3.rope"))} == {
            "gemma3.attention.head_count": 4,
            "gemma3.attention.head_count_kv": 1,
            "gemma3.attention.key_length": 16,
            "gemma3.attention.value_length": 16,
            "gemma3.attention.layer_norm_rms_epsilon": 1e-6,
            "gemma3.attention.scale": 0.25,
            "gemma3.attention.sliding_window": 8,
            "gemma3.attention.sliding_window_pattern": [True, True, True, True, True, False],
            "gemma3.rope.freq_base": 1e6,
            "gemma3.rope.freq_base_swa": 1e4,
            "gemma3.rope.dimension_count": 16,
        }
        assert "output.weight" not in checkpoint.tensors
        assert len(checkpoint.tensors) == len(source)
        norms = {
            "input_layernorm": "attn_norm",
            "post_attention_layernorm": "post_attention_norm",
            "pre_feedforward_layernorm": "ffn_norm",
            "post_feedforward_layernorm": "post_ffw_norm",
            "self_attn.q_norm": "attn_q_norm",
            "self_attn.k_norm": "attn_k_norm",
        }
        for theirs, ours in norms.items():
            read = values(checkpoint.tensors[f"blk.3.{ours}.weight"])
            assert np.array_equal(read, 1 + source[f"model.layers.3.{theirs}.weight"])
        assert np.array_equal(values(checkpoint.tensors["output_norm.weight"]), 1 + source["model.norm.weight"])
        q = values(checkpoint.tensors["blk.3.attn_q.weight"])
        assert np.array_equal(q, source["model.layers.3.self_attn.q_proj.weight"])


def test_gemma3_as_transformers_4_wrote_it(tmp_path: Path) -> None:
    folder = changed(
        GEMMA3,
        tmp_path,
        rope_parameters=None,
        layer_types=None,
        tie_word_embeddings=None,
        rope_theta=1_000_000,
        rope_local_base_freq=20_000,
        rope_scaling={"rope_type": "linear", "factor": 8.0},
        sliding_window_pattern=3,
    )
    with open_huggingface(folder) as checkpoint:
        assert checkpoint.metadata["gemma3.rope.freq_base"] == 1e6
        assert checkpoint.metadata["gemma3.rope.freq_base_swa"] == 2e4
        assert checkpoint.metadata["gemma3.rope.scaling.type"] == "linear"
        assert checkpoint.metadata["gemma3.rope.scaling.factor"] == 8.0
        assert checkpoint.metadata["gemma3.attention.sliding_window_pattern"] == [True, True, False] * 2


def test_mistral_is_llama_with_a_window(tmp_path: Path) -> None:
    folder = changed(LLAMA, tmp_path, architectures=["MistralForCausalLM"], head_dim=None, sliding_window=4096)
    with open_huggingface(folder) as checkpoint:
        assert checkpoint.architecture == "llama"
        assert checkpoint.metadata["llama.attention.key_length"] == 16
        assert checkpoint.metadata["llama.attention.sliding_window"] == 4096


def test_llama3_scaling_becomes_a_tensor(tmp_path: Path) -> None:
    scaling = {
        "rope_type": "llama3",
        "factor": 32.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    with open_huggingface(changed(LLAMA, tmp_path, rope_parameters=scaling)) as checkpoint:
        factors = checkpoint.tensors["rope_freqs.weight"]
        assert (factors.dtype.name, factors.shape) == ("f32", (8,))
        assert values(factors)[0] == 1
        assert values(factors)[-1] == 32
        assert "llama.rope.scaling.type" not in checkpoint.metadata


def test_a_tied_output_is_left_out(tmp_path: Path) -> None:
    with open_huggingface(changed(LLAMA, tmp_path, tie_word_embeddings=True)) as checkpoint:
        assert "output.weight" not in checkpoint.tensors


def test_an_untied_output_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"no lm_head\.weight"):
        open_huggingface(changed(GEMMA3, tmp_path, tie_word_embeddings=False))


def test_biases(tmp_path: Path) -> None:
    folder = changed(LLAMA, tmp_path, attention_bias=True)
    weights = load_file(LLAMA / "model.safetensors")
    bias = np.arange(64, dtype=np.float32)
    save_file(weights | {"model.layers.0.self_attn.q_proj.bias": bias}, folder / "model.safetensors")
    with open_huggingface(folder) as checkpoint:
        assert np.array_equal(values(checkpoint.tensors["blk.0.attn_q.bias"]), bias)


def shards(folder: Path) -> dict[str, str]:
    """Split the tiny Llama's weights in two; return the index's weight_map."""
    weights = load_file(LLAMA / "model.safetensors")
    names = sorted(weights)
    placed = {name: f"model-{1 + i % 2:05}-of-00002.safetensors" for i, name in enumerate(names)}
    for file_name in set(placed.values()):
        save_file({name: weights[name] for name in names if placed[name] == file_name}, folder / file_name)
    shutil.copy(LLAMA / "config.json", folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": placed}))
    return placed


def test_shards_are_joined(tmp_path: Path) -> None:
    shards(tmp_path)
    with open_huggingface(tmp_path) as checkpoint, open_huggingface(LLAMA) as expected:
        assert set(checkpoint.tensors) == set(expected.tensors)
        for name, tensor in checkpoint.tensors.items():
            assert np.array_equal(tensor.data, expected.tensors[name].data)


def test_a_shard_is_missing(tmp_path: Path) -> None:
    shards(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(ModelNotFound, match="model-00002"):
        open_huggingface(tmp_path)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "", 7])
def test_an_index_cannot_name_files_elsewhere(tmp_path: Path, name: object) -> None:
    placed = shards(tmp_path) | {"lm_head.weight": name}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": placed}))
    with pytest.raises(CorruptFile):
        open_huggingface(tmp_path)


def test_two_shards_with_one_tensor(tmp_path: Path) -> None:
    placed = shards(tmp_path)
    shutil.copy(tmp_path / placed["lm_head.weight"], tmp_path / "again.safetensors")
    index = {"weight_map": placed | {"x": "again.safetensors"}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CorruptFile, match="too"):
        open_huggingface(tmp_path)


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ({"architectures": ["Qwen3ForCausalLM"]}, UnsupportedFile, "Qwen3ForCausalLM"),
        ({"architectures": None}, CorruptFile, "no 'architectures'"),
        ({"architectures": "LlamaForCausalLM"}, CorruptFile, "not a list of strings"),
        ({"hidden_size": None}, CorruptFile, "no 'hidden_size'"),
        ({"hidden_size": "64"}, CorruptFile, "'hidden_size' is '64'"),
        ({"num_hidden_layers": True}, CorruptFile, "'num_hidden_layers' is True"),
        ({"num_hidden_layers": 10**9}, CorruptFile, "'num_hidden_layers' is 1000000000"),
        ({"head_dim": -1}, CorruptFile, "'head_dim' is -1"),
        ({"rms_norm_eps": 10**400}, CorruptFile, "'rms_norm_eps'"),
        # With llama3 scaling this would be a table of as many frequencies.
        ({"partial_rotary_factor": 1e9}, CorruptFile, "'partial_rotary_factor' is 1000000000.0, not up to 1"),
        ({"tie_word_embeddings": "no"}, CorruptFile, "'tie_word_embeddings' is 'no', not true or false"),
        ({"rope_parameters": [1]}, CorruptFile, "'rope_parameters' is [1], not an object"),
        ({"rope_parameters": {"rope_type": "dynamic"}}, UnsupportedFile, "dynamic"),
        ({"hidden_act": "gelu"}, UnsupportedFile, "'hidden_act' of 'gelu'"),
        ({"quantization_config": {"bits": 4}}, UnsupportedFile, "quantised"),
    ],
    ids=str,
)
def test_config_that_cannot_be_used(
    tmp_path: Path, changes: dict[str, object], kind: type[ModelFileError], message: str
) -> None:
    with pytest.raises(ModelFileError) as caught:
        open_huggingface(changed(LLAMA, tmp_path, **changes))
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert str(tmp_path) in caught.value.message


def test_a_tensor_that_the_architecture_lacks(tmp_path: Path) -> None:
    folder = changed(LLAMA, tmp_path)
    weights = load_file(LLAMA / "model.safetensors")
    save_file(
        weights | {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32)}, folder / "model.safetensors"
    )
    open_huggingface(folder).close()
    save_file(weights | {"model.layers.0.adapter.weight": np.ones(8, np.float32)}, folder / "model.safetensors")
    with pytest.raises(UnsupportedFile, match="adapter"):
        open_huggingface(folder)


def test_layer_types_for_another_number_of_layers(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="1 layer_types for 6 layers"):
        open_huggingface(changed(GEMMA3, tmp_path, layer_types=["full_attention"]))


def test_no_model_in_the_directory(tmp_path: Path) -> None:
    with pytest.raises(NotAModelFile, match=r"no config\.json"):
        open_huggingface(tmp_path)
    (tmp_path / "config.json").write_bytes(b"[]")
    with pytest.raises(CorruptFile, match="no JSON object"):
        open_huggingface(tmp_path)
    shutil.copy(LLAMA / "config.json", tmp_path)
    with pytest.raises(ModelNotFound, match=r"model\.safetensors"):
        open_huggingface(tmp_path)


def test_a_config_of_many_megabytes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}" + " " * (4 << 20))
    with pytest.raises(CorruptFile, match="bytes long"):
        open_huggingface(tmp_path)


def test_recommended_sampling_goes_by_gguf_s_keys(tmp_path: Path) -> None:
    folder = changed(LLAMA, tmp_path)
    generation = {"temperature": 0.6, "top_k": 40, "repetition_penalty": 1.1, "top_p": None, "do_sample": True}
    (folder / "generation_config.json").write_text(json.dumps(generation))
    with open_huggingface(folder) as checkpoint:
        sampling = {key: value for key, value in checkpoint.metadata.items() if key.startswith("general.sampling.")}
    assert sampling == {
        "general.sampling.temp": 0.6,
        "general.sampling.top_k": 40,
        "general.sampling.penalty_repeat": 1.1,
    }
