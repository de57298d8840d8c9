"""Buffers that share memory, checked byte by byte: whatever an op reads is still what its writer left there."""

import itertools
import random

import numpy as np
import pytest
from devices.random_model import RandomModel
from numpy.typing import NDArray

from hipfire.devices.arena import Plan
from hipfire.devices.cpu_lowering import ROW_WISE, Addresses, lower, plan_program
from hipfire.dtypes import DTYPES
from hipfire.kernels.library import CpuOp, OpKind
from hipfire.program import ops
from hipfire.program.operands import Buffer, Constant, Symbol, Weight
from hipfire.program.program import Builder, Program

ROWS = {Symbol.N_TOKENS: 5, Symbol.N_OUTPUTS: 3}
ARENA = 1 << 20
WIDTHS = (32, 96, 224)


def n_rows(buffer: Buffer) -> int:
    rows = buffer.shape[0]
    assert isinstance(rows, Symbol)
    return ROWS[rows]


def q16_row_nbytes(width: int) -> int:
    return 2 * width + width // 2


def planned(program: Program, *, keep: bool = False) -> Plan:
    return plan_program(program, n_rows, q16_row_nbytes, keep=keep)


class Memory:
    """Remembers for each byte of the arena which form of which buffer was written there last."""

    def __init__(self, plan: Plan) -> None:
        self._owners: NDArray[np.int64] = np.zeros(plan.nbytes, np.int64)
        self._numbers: dict[tuple[str, str], int] = {}

    def write(self, form: str, buffer: Buffer, address: int) -> None:
        number = self._numbers.setdefault((form, buffer.name), len(self._numbers) + 1)
        self._bytes(form, buffer, address)[:] = number

    def check(self, form: str, buffer: Buffer, address: int) -> None:
        intact = self._bytes(form, buffer, address) == self._numbers[form, buffer.name]
        assert intact.all(), f"{form} of {buffer.name}: overwritten"

    def _bytes(self, form: str, buffer: Buffer, address: int) -> NDArray[np.int64]:
        nbytes = n_rows(buffer) * (4 * buffer.width if form == "floats" else q16_row_nbytes(buffer.width))
        start = address - ARENA
        assert 0 <= start <= start + nbytes <= self._owners.size
        return self._owners[start : start + nbytes]


def check_reads(op: ops.Op, lowered: CpuOp, memory: Memory) -> None:
    """Every buffer that the op names, in the form that its kernel reads."""
    match op:
        case ops.Linear():
            quantised = [weight.dtype.is_quantised for weight in op.weights]
            if any(quantised):
                memory.check("q16", op.x, lowered.x_q16)
            if not all(quantised):
                memory.check("floats", op.x, lowered.x)
            if op.residual:
                memory.check("floats", op.residual, lowered.residual)
        case ops.RmsNorm():
            memory.check("floats", op.x, lowered.x)
            if op.residual:
                memory.check("floats", op.residual, lowered.residual)
        case ops.RopeStore():
            memory.check("floats", op.qkv, lowered.x)
            memory.check("floats", op.angles, lowered.angles)
        case ops.Attention():
            memory.check("floats", op.q, lowered.x)
        case ops.Gated() | ops.GatherOutputs():
            memory.check("floats", op.x, lowered.x)


def check(program: Program, *, keep: bool = False) -> Plan:
    """Walk through the C ops and fail where one reads what another has overwritten."""
    plan = planned(program, keep=keep)
    names = {operand.name for op in program.ops for operand in op.operands() if isinstance(operand, Weight | Constant)}
    at = Addresses(
        arena=ARENA,
        plan=plan,
        vectors=dict.fromkeys(names, 8),
        packed=dict.fromkeys(names, 8),
        states={state.name: 8 for state in program.states},
        formats=dict.fromkeys(DTYPES, 0),
        kv_format=1,
        max_seq=32,
    )
    lowered = lower(program, at)
    memory = Memory(plan)
    following = iter(lowered)
    for op in program.ops:
        native = next(following)
        # Told wrongly, the kernel would write rows that the buffer has no room for.
        assert native.per_output == (op.out.shape[0] is Symbol.N_OUTPUTS)
        check_reads(op, native, memory)
        if op.out.name in plan.floats:
            memory.write("floats", op.out, native.out)
        else:
            assert native.out is None
            assert native.out_q16
        if op.out.name in plan.quantised and not isinstance(op, ROW_WISE):
            memory.check("floats", op.out, native.out)
            native = next(following)
            assert native.kind == OpKind.QUANTISE
            assert native.per_output == (op.out.shape[0] is Symbol.N_OUTPUTS)
            memory.check("floats", op.out, native.x)
        if native.out_q16:
            memory.write("q16", op.out, native.out_q16)
        if op.out.name in plan.floats:
            memory.check("floats", op.out, plan.floats[op.out.name].offset + ARENA)
    assert next(following, None) is None
    memory.check("floats", program.logits, plan.floats[program.logits.name].offset + ARENA)
    return plan


def random_program(seed: int) -> Program:
    """Ops over buffers chosen at random, old ones too, so that lives are of every length."""
    choose = random.Random(seed)
    builder = Builder()
    buffers: list[Buffer] = []

    def weight(name: str, *shape: int) -> Weight:
        dtype = choose.choice(("f32", "q8_0")) if len(shape) > 1 else "f32"
        return Weight(name=name, dtype=DTYPES[dtype], shape=shape)

    def residual(shape: tuple[object, ...]) -> Buffer | None:
        return choose.choice([None, *(buffer for buffer in buffers if buffer.shape == shape)])

    def linear(name: str, x: Buffer) -> Buffer:
        widths = [choose.choice(WIDTHS) for _ in range(choose.randint(1, 2))]
        weights = [weight(f"{name}.{i}", width, x.width) for i, width in enumerate(widths)]
        return builder.linear(name, x, weights, residual=residual((x.shape[0], sum(widths))))

    for number in range(choose.randint(2, 30)):
        name = f"b{number}"
        x = choose.choice(buffers[-4:]) if buffers else None
        kind = choose.randrange(6)
        if x is None or kind == 0:
            made = builder.embed(name, weight(f"{name}.table", 7, choose.choice(WIDTHS)))
        elif kind == 1:
            made = builder.rms_norm(name, x, weight(name, x.width), eps=0.1, residual=residual(x.shape))
        elif kind == 2 and x.width % 64 == 0:
            made = builder.gated(name, x, activation="silu")
        elif kind == 3 and x.shape[0] is Symbol.N_TOKENS:
            made = builder.gather_outputs(name, x)
        else:
            made = linear(name, x)
        buffers.append(made)
    tokens = next(buffer for buffer in reversed(buffers) if buffer.shape[0] is Symbol.N_TOKENS)
    return builder.finish(builder.gather_outputs("logits", tokens))


@pytest.mark.parametrize("seed", range(100))
def test_a_random_program_reads_what_was_written(seed: int) -> None:
    check(random_program(seed))


@pytest.mark.parametrize("dtype", ["f32", "q8_0", "q6_k"])
@pytest.mark.parametrize("architecture", ["llama", "gemma3"])
def test_a_model_reads_what_was_written(architecture: str, dtype: str) -> None:
    model = RandomModel(architecture=architecture, dtype=dtype, n_layers=6, n_embd=256, n_ff=512, head_dim=64)
    program, _ = model.build()
    shared, apart = check(program), check(program, keep=True)
    assert shared.nbytes < apart.nbytes / 5


@pytest.mark.parametrize(("dtypes", "has_floats"), [(["q8_0"], False), (["q8_0", "f32"], True), (["f32"], True)])
def test_floats_that_nobody_reads_have_no_place(dtypes: list[str], has_floats: bool) -> None:
    builder = Builder()
    rows = builder.embed("rows", Weight(name="table", dtype=DTYPES["f32"], shape=(7, 32)))
    norm = builder.rms_norm("norm", rows, Weight(name="scale", dtype=DTYPES["f32"], shape=(32,)), eps=0.1)
    weights = [Weight(name=dtype, dtype=DTYPES[dtype], shape=(32, 32)) for dtype in dtypes]
    out = builder.gather_outputs("logits", builder.linear("out", norm, weights))
    program = builder.finish(out)
    assert ("norm" in check(program).floats) == has_floats
    assert "norm" in check(program, keep=True).floats
    # What an op adds is read as floats, whatever else reads it.
    builder.linear("again", norm, weights, residual=norm if len(weights) == 1 else None)
    assert len(weights) > 1 or "norm" in check(builder.finish(out)).floats
    # The logits are read when the step is over.
    builder.linear("more", out, [Weight(name="more", dtype=DTYPES["q8_0"], shape=(32, out.width))])
    assert "logits" in check(builder.finish(out)).floats


def test_buffers_that_are_kept_share_nothing() -> None:
    plan = check(random_program(0), keep=True)
    regions = sorted([*plan.floats.values(), *plan.quantised.values()], key=lambda region: region.offset)
    for region, following in itertools.pairwise(regions):
        assert region.offset + region.nbytes <= following.offset
