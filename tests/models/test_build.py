"""What a builder reads from a file, and that whatever is missing or wrong is an error that names it."""

import contextlib

import attrs
import numpy as np
import pytest
from devices.random_model import RandomModel
from hypothesis import given
from hypothesis import strategies as st

from hipfire.dtypes import DTYPES
from hipfire.errors import CorruptFile, ModelFileError, UnsupportedFile
from hipfire.formats.checkpoint import Checkpoint, MetaValue, Tensor
from hipfire.models.registry import build_program
from hipfire.program import ops


def changed(
    checkpoint: Checkpoint, *, metadata: dict[str, MetaValue | None] | None = None, **tensors: Tensor | None
) -> Checkpoint:
    """The checkpoint with some metadata (keys without prefix) and tensors replaced, or removed by None."""
    values = dict(checkpoint.metadata)
    for key, value in (metadata or {}).items():
        values.pop(f"{checkpoint.architecture}.{key}", None)
        if value is not None:
            values[f"{checkpoint.architecture}.{key}"] = value
    found = {name: tensor for name, tensor in (checkpoint.tensors | tensors).items() if tensor is not None}
    return attrs.evolve(checkpoint, metadata=values, tensors=found, close=lambda: None)


def vector(name: str, *values: float) -> Tensor:
    data = np.array(values, np.float32)
    return Tensor(name=name, dtype=DTYPES["f32"], shape=data.shape, data=data.view(np.uint8))


def attentions(checkpoint: Checkpoint) -> list[ops.Attention]:
    return [op for op in build_program(checkpoint).program.ops if isinstance(op, ops.Attention)]


def frequencies(checkpoint: Checkpoint) -> list[np.ndarray]:
    program = build_program(checkpoint).program
    return [op.inverse_frequencies.value for op in program.ops if isinstance(op, ops.RopeAngles)]


LLAMA = RandomModel(n_layers=3).checkpoint()
GEMMA3 = RandomModel(architecture="gemma3", n_layers=8, interleaved=False, window=5).checkpoint()


def test_a_model_knows_its_numbers() -> None:
    model = build_program(LLAMA)
    assert (model.architecture, model.n_vocab, model.context_length, model.n_layers) == ("llama", 131, 512, 3)
    assert [state.name for state in model.program.states][:2] == ["blk.0.keys", "blk.0.values"]


@pytest.mark.parametrize("tied", [True, False])
def test_the_output_matrix_may_be_the_embedding(tied: bool) -> None:
    program = build_program(RandomModel(tied=tied).checkpoint()).program
    head = program.ops[-1]
    assert isinstance(head, ops.Linear)
    assert head.weights[0].name == ("token_embd.weight" if tied else "output.weight")


def test_head_counts_may_differ_from_layer_to_layer() -> None:
    narrow = RandomModel(n_layers=1, n_heads=2, n_kv_heads=1).checkpoint().tensors
    first = {name: tensor for name, tensor in narrow.items() if name.startswith("blk.0.attn")}
    checkpoint = changed(
        LLAMA, metadata={"attention.head_count": [2, 4, 4], "attention.head_count_kv": [1, 2, 2]}, **first
    )
    assert [(op.n_heads, op.keys.n_kv_heads) for op in attentions(checkpoint)] == [(2, 1), (4, 2), (4, 2)]


def test_a_file_may_leave_out_what_has_a_usual_value() -> None:
    alike = RandomModel(n_kv_heads=4, head_dim=16, n_embd=64).checkpoint()
    usual = dict.fromkeys(
        ("attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.freq_base")
    )
    (op, *_) = attentions(changed(alike, metadata=usual))
    assert (op.n_heads, op.keys.n_kv_heads, op.keys.head_dim, op.scale, op.window) == (4, 4, 16, 0.25, None)
    (found,) = frequencies(changed(alike, metadata=usual))
    np.testing.assert_allclose(found, 10000.0 ** (-np.arange(8) / 8), rtol=1e-6)


def test_llama_settings_that_few_files_have() -> None:
    metadata: dict[str, MetaValue | None] = {
        "attention.sliding_window": 7,
        "attention.scale": 0.5,
        "rope.dimension_count": 6,
    }
    checkpoint = changed(LLAMA, metadata=metadata)
    assert {(op.window, op.scale) for op in attentions(checkpoint)} == {(7, 0.5)}
    assert frequencies(checkpoint)[0].size == 3
    # What a window of 0 says is that there is none.
    assert attentions(changed(LLAMA, metadata={"attention.sliding_window": 0}))[0].window is None


@pytest.mark.parametrize(
    ("metadata", "windows"),
    [
        ({}, [5, 5, 5, 5, 5, None, 5, 5]),
        ({"attention.sliding_window_pattern": 3}, [5, 5, None, 5, 5, None, 5, 5]),
        ({"attention.sliding_window_pattern": 1}, [None] * 8),
        ({"attention.sliding_window_pattern": [False, True] * 4}, [None, 5] * 4),
        ({"attention.sliding_window": None}, [None] * 8),
    ],
)
def test_gemma3_layers_with_and_without_a_window(
    metadata: dict[str, MetaValue | None], windows: list[int | None]
) -> None:
    program = build_program(changed(GEMMA3, metadata=metadata)).program
    assert [op.window for op in program.ops if isinstance(op, ops.Attention)] == windows
    stores = [op for op in program.ops if isinstance(op, ops.RopeStore)]
    assert [op.angles.name for op in stores] == ["rope_sliding" if window else "rope" for window in windows]


def test_gemma3_rotation_of_each_kind_of_layer() -> None:
    metadata: dict[str, MetaValue | None] = {"rope.freq_base": 1e6, "rope.scaling.factor": 8.0}
    everywhere, sliding = frequencies(changed(GEMMA3, metadata=metadata))
    np.testing.assert_allclose(everywhere, 1e6 ** (-np.arange(8) / 8) / 8, rtol=1e-6)
    np.testing.assert_allclose(sliding, 1e4 ** (-np.arange(8) / 8), rtol=1e-6)


def test_gemma3_scales() -> None:
    program = build_program(GEMMA3).program
    assert isinstance(program.ops[0], ops.Embed)
    assert program.ops[0].scale == 8.0
    assert {op.scale for op in attentions(GEMMA3)} == {0.25}
    # The 27B model is known by its layers: queries are scaled by n_embd / n_heads.
    largest = RandomModel(architecture="gemma3", n_layers=62, n_embd=48, n_heads=4, head_dim=16).checkpoint()
    assert {op.scale for op in attentions(largest)} == {12**-0.5}
    assert {op.scale for op in attentions(changed(largest, metadata={"attention.scale": 0.7}))} == {0.7}


@pytest.mark.parametrize("key", ["block_count", "embedding_length", "context_length", "attention.head_count"])
def test_missing_metadata_is_named(key: str) -> None:
    with pytest.raises(CorruptFile, match=rf"random-llama: metadata llama\.{key} is missing"):
        build_program(changed(LLAMA, metadata={key: None}))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("block_count", 0),
        ("block_count", -1),
        ("block_count", True),
        ("block_count", "3"),
        ("attention.head_count", [4, 4]),
        ("attention.head_count", [4, 0, 4]),
        ("attention.head_count", 4.0),
        ("attention.layer_norm_rms_epsilon", float("nan")),
        ("attention.layer_norm_rms_epsilon", -1.0),
        ("attention.layer_norm_rms_epsilon", "small"),
        ("rope.freq_base", float("inf")),
        ("rope.freq_base", 1.0),
        ("rope.dimension_count", 5),
        ("rope.dimension_count", 18),
        ("rope.scaling.type", 7),
        ("rope.scaling.attn_factor", 0.0),
    ],
)
def test_metadata_that_makes_no_sense_is_named(key: str, value: MetaValue) -> None:
    with pytest.raises(CorruptFile, match=key):
        build_program(changed(LLAMA, metadata={key: value}))


def test_gemma3_pattern_of_the_wrong_length() -> None:
    with pytest.raises(CorruptFile, match="sliding_window_pattern"):
        build_program(changed(GEMMA3, metadata={"attention.sliding_window_pattern": [True, False]}))


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "output_norm.weight", "blk.2.attn_q.weight", "blk.0.ffn_norm.weight"]
)
def test_missing_tensors_are_named(name: str) -> None:
    with pytest.raises(CorruptFile, match=f"random-llama: tensor {name} is missing"):
        build_program(changed(LLAMA, **{name: None}))


@pytest.mark.parametrize(
    "name", ["token_embd.weight", "blk.1.attn_k.weight", "blk.1.ffn_down.weight", "blk.2.ffn_norm.weight"]
)
def test_tensors_of_a_wrong_shape_are_named(name: str) -> None:
    with pytest.raises(CorruptFile, match=f"tensor {name} has shape 3"):
        build_program(changed(LLAMA, **{name: vector(name, 1, 2, 3)}))


def test_a_bias_of_a_wrong_shape_is_named() -> None:
    name = "blk.0.attn_q.bias"
    with pytest.raises(CorruptFile, match=rf"tensor {name} has shape 3, not 64"):
        build_program(changed(LLAMA, **{name: vector(name, 1, 2, 3)}))


def test_rows_that_are_no_whole_blocks() -> None:
    name = "blk.0.ffn_down.weight"
    tensor = Tensor(name=name, dtype=DTYPES["q4_k"], shape=(64, 96), data=np.zeros(24 * 144, np.uint8))
    with pytest.raises(CorruptFile, match=rf"a row of {name} .* no whole number of q4_k blocks"):
        build_program(changed(LLAMA, **{name: tensor}))


def test_heads_that_do_not_divide() -> None:
    five = {"attention.head_count": 5, "attention.key_length": None, "attention.value_length": None}
    with pytest.raises(CorruptFile, match="5 heads do not divide an embedding_length of 64"):
        build_program(changed(LLAMA, metadata=five))
    with pytest.raises(CorruptFile, match="heads are no multiple of KV heads"):
        build_program(RandomModel(n_heads=4, n_kv_heads=3).checkpoint())


@pytest.mark.parametrize(
    ("checkpoint", "metadata", "message"),
    [
        (LLAMA, {"expert_count": 8}, "mixture of experts"),
        (LLAMA, {"attention.value_length": 8}, "value_length 8"),
        (LLAMA, {"rope.scaling.type": "longrope"}, "'longrope'.*none, linear and yarn"),
        (GEMMA3, {"final_logit_softcapping": 30.0}, "soft-capping"),
    ],
)
def test_features_that_are_not_there_are_named(
    checkpoint: Checkpoint, metadata: dict[str, MetaValue | None], message: str
) -> None:
    with pytest.raises(UnsupportedFile, match=message):
        build_program(changed(checkpoint, metadata=metadata))


def test_numbers_that_no_file_holds_cost_nothing() -> None:
    for key in ("block_count", "attention.key_length", "attention.head_count", "embedding_length"):
        metadata: dict[str, MetaValue | None] = {key: 1 << 60, "attention.value_length": None}
        with pytest.raises(CorruptFile):
            build_program(changed(LLAMA, metadata=metadata))


ANY_VALUE = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 70),
    st.integers(-(1 << 63), (1 << 64) - 1),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(0, 5), max_size=9),
    st.lists(st.booleans(), max_size=9),
)


@given(st.sampled_from([LLAMA, GEMMA3]), st.data())
def test_any_metadata_is_a_program_or_a_named_error(checkpoint: Checkpoint, data: st.DataObject) -> None:
    keys = sorted(key.partition(".")[2] for key in checkpoint.metadata)
    keys += ["rope.scaling.type", "rope.scaling.factor", "attention.scale", "attention.sliding_window_pattern"]
    metadata = data.draw(st.dictionaries(st.sampled_from(keys), ANY_VALUE, min_size=1, max_size=3))
    with contextlib.suppress(ModelFileError):
        build_program(changed(checkpoint, metadata=metadata))


def test_an_unknown_architecture_is_named_with_the_known() -> None:
    with pytest.raises(UnsupportedFile, match="'mamba'; this build has llama, gemma3"):
        build_program(attrs.evolve(LLAMA, architecture="mamba", close=lambda: None))
