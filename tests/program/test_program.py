"""The builder's promises, and each op's shape rule: operands that do not fit are refused when the op is written."""

from collections.abc import Callable

import numpy as np
import pytest

from hipfire.dtypes import DTYPES
from hipfire.program import ops
from hipfire.program.operands import Buffer, Constant, KvState, Symbol, Weight
from hipfire.program.program import Builder

ROWS, OUTPUTS = Symbol.N_TOKENS, Symbol.N_OUTPUTS
N_HEADS, N_KV_HEADS, HEAD_DIM = 4, 2, 8
QKV_WIDTH = (N_HEADS + 2 * N_KV_HEADS) * HEAD_DIM


def weight(*shape: int, dtype: str = "f32") -> Weight:
    return Weight(name="w" + "x".join(map(str, shape)), dtype=DTYPES[dtype], shape=shape)


def buffer(*shape: int | Symbol) -> Buffer:
    return Buffer(name="b", shape=shape)


def state(n_kv_heads: int = N_KV_HEADS, head_dim: int = HEAD_DIM) -> KvState:
    return KvState(name="s", n_kv_heads=n_kv_heads, head_dim=head_dim)


def rope_store(**changes: object) -> ops.RopeStore:
    operands: dict[str, object] = {
        "out": buffer(ROWS, N_HEADS * HEAD_DIM),
        "qkv": buffer(ROWS, QKV_WIDTH),
        "angles": buffer(ROWS, HEAD_DIM),
        "keys": state(),
        "values": state(),
        "n_heads": N_HEADS,
        "interleaved": True,
        "q_norm": None,
        "k_norm": weight(HEAD_DIM),
    }
    return ops.RopeStore(**{**operands, **changes})


def attention(**changes: object) -> ops.Attention:
    width = N_HEADS * HEAD_DIM
    operands: dict[str, object] = {
        "out": buffer(ROWS, width),
        "q": buffer(ROWS, width),
        "keys": state(),
        "values": state(),
        "n_heads": N_HEADS,
        "scale": 1.0,
        "window": None,
    }
    return ops.Attention(**{**operands, **changes})


def linear(**changes: object) -> ops.Linear:
    operands: dict[str, object] = {
        "out": buffer(ROWS, 12),
        "x": buffer(ROWS, 64),
        "weights": (weight(4, 64, dtype="q4_0"), weight(8, 64)),
        "biases": (None, weight(8)),
        "residual": None,
    }
    return ops.Linear(**{**operands, **changes})


FITTING: list[ops.Op] = [
    ops.Embed(out=buffer(ROWS, 32), table=weight(10, 32, dtype="q8_0")),
    ops.RmsNorm(out=buffer(ROWS, 6), x=buffer(ROWS, 6), weight=weight(6), eps=1e-5, residual=buffer(ROWS, 6)),
    linear(),
    linear(residual=buffer(ROWS, 12)),
    ops.RopeAngles(
        out=buffer(ROWS, 8), inverse_frequencies=Constant(name="f", value=np.ones(4, np.float32)), scale=2.0
    ),
    rope_store(),
    attention(window=3),
    ops.Gated(out=buffer(ROWS, 5), x=buffer(ROWS, 10), activation="silu"),
    ops.GatherOutputs(out=buffer(OUTPUTS, 7), x=buffer(ROWS, 7)),
]

MISFITS: list[tuple[str, ops.Op]] = [
    ("width is not the table's", ops.Embed(out=buffer(ROWS, 31), table=weight(10, 32))),
    ("is not a matrix", ops.Embed(out=buffer(ROWS, 32), table=weight(32))),
    ("no whole number of q8_0 blocks", ops.Embed(out=buffer(ROWS, 48), table=weight(10, 48, dtype="q8_0"))),
    ("norm weight", ops.RmsNorm(out=buffer(ROWS, 6), x=buffer(ROWS, 6), weight=weight(5), eps=1e-5)),
    ("not of the input's shape", ops.RmsNorm(out=buffer(OUTPUTS, 6), x=buffer(ROWS, 6), weight=weight(6), eps=0.0)),
    (
        "residual does not fit",
        ops.RmsNorm(out=buffer(ROWS, 6), x=buffer(ROWS, 6), weight=weight(6), eps=0.0, residual=buffer(ROWS, 7)),
    ),
    ("for 64 inputs", linear(weights=(weight(4, 32), weight(8, 64)))),
    ("no whole number of q4_k blocks", linear(weights=(weight(4, 64, dtype="q4_k"), weight(8, 64)))),
    ("not one bias", linear(biases=(None,))),
    ("not one bias", linear(weights=(), biases=())),
    ("bias of w4x64 does not fit", linear(biases=(weight(8), None))),
    ("12 outputs", linear(out=buffer(ROWS, 13))),
    ("residual does not fit", linear(residual=buffer(OUTPUTS, 12))),
    (
        "width",
        ops.RopeAngles(out=buffer(ROWS, 6), inverse_frequencies=Constant(name="f", value=np.ones(4, np.float32))),
    ),
    ("K and V differ", rope_store(values=state(head_dim=4))),
    ("wide", rope_store(qkv=buffer(ROWS, QKV_WIDTH + 1))),
    ("Q does not fit", rope_store(out=buffer(ROWS, 8))),
    ("head norm does not fit", rope_store(q_norm=weight(HEAD_DIM + 1))),
    ("rotates 10 elements of 8", rope_store(angles=buffer(ROWS, 10))),
    ("not a row for each token", rope_store(angles=buffer(OUTPUTS, 8))),
    ("no multiple", attention(n_heads=3)),
    ("wide", attention(q=buffer(ROWS, 8))),
    ("a window of 0", attention(window=0)),
    ("is odd", ops.Gated(out=buffer(ROWS, 5), x=buffer(ROWS, 11), activation="silu")),
    ("not half", ops.Gated(out=buffer(ROWS, 6), x=buffer(ROWS, 10), activation="gelu_tanh")),
    ("not of the input's width", ops.GatherOutputs(out=buffer(OUTPUTS, 8), x=buffer(ROWS, 7))),
]


@pytest.mark.parametrize("op", FITTING, ids=lambda op: type(op).__name__)
def test_operands_that_fit_pass(op: ops.Op) -> None:
    op.check()


@pytest.mark.parametrize(("message", "op"), MISFITS, ids=lambda part: part if isinstance(part, str) else "")
def test_operands_that_do_not_fit_are_refused(message: str, op: ops.Op) -> None:
    with pytest.raises(ops.ShapeError, match=message):
        op.check()


def test_keys_and_values_are_two_states() -> None:
    one = state()
    with pytest.raises(ops.ShapeError, match="K and V are one state"):
        rope_store(keys=one, values=one).check()


def small_program() -> tuple[Builder, Buffer]:
    builder = Builder()
    table = weight(10, 8)
    x = builder.embed("embed", table)
    x = builder.rms_norm("norm", x, weight(8), eps=1e-5)
    x = builder.linear("double", x, [weight(8, 8), weight(8, 8)], biases=[None, weight(8)])
    x = builder.gated("gated", x, activation="silu")
    return builder, builder.linear("logits", builder.gather_outputs("last", x), [table])


def test_a_program_lists_its_weights_once_in_order_of_use() -> None:
    builder, logits = small_program()
    assert [used.name for used in builder.finish(logits).weights] == ["w10x8", "w8", "w8x8"]


def test_a_program_prints_one_line_an_op() -> None:
    builder, logits = small_program()
    assert str(builder.finish(logits)).splitlines() == [
        "embed[n_tokens, 8] = Embed(table=w10x8, scale=1.0)",
        "norm[n_tokens, 8] = RmsNorm(x=embed, weight=w8, eps=1e-05, residual=None)",
        "double[n_tokens, 16] = Linear(x=norm, weights=[w8x8, w8x8], biases=[-, w8], residual=None)",
        "gated[n_tokens, 8] = Gated(x=double, activation=silu)",
        "last[n_outputs, 8] = GatherOutputs(x=gated)",
        "logits[n_outputs, 10] = Linear(x=last, weights=[w10x8], biases=[-], residual=None)",
    ]


def test_a_program_tells_when_each_buffer_is_read_last() -> None:
    builder = Builder()
    x = builder.embed("x", weight(10, 8))
    builder.rms_norm("unread", x, weight(8), eps=0.0)
    y = builder.rms_norm("y", x, weight(8), eps=0.0, residual=x)
    logits = builder.gather_outputs("logits", y)
    assert builder.finish(logits).last_reads == {"x": 2, "unread": 1, "y": 3, "logits": 4}


def rename(builder: Builder) -> None:
    builder.embed("embed", weight(10, 8))


def state_of_a_buffers_name(builder: Builder) -> None:
    builder.kv_state("norm", n_kv_heads=1, head_dim=8)


def read_before_write(builder: Builder) -> None:
    builder.gated("early", buffer(ROWS, 8), activation="silu")


def finish_with_rows_of_tokens(builder: Builder) -> None:
    builder.finish(builder.embed("other", weight(10, 8)))


@pytest.mark.parametrize("fault", [rename, state_of_a_buffers_name, read_before_write, finish_with_rows_of_tokens])
def test_the_builder_refuses_a_program_that_cannot_run(fault: Callable[[Builder], None]) -> None:
    builder, _ = small_program()
    with pytest.raises(ops.ShapeError):
        fault(builder)
