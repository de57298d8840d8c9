"""Which forms of its buffers a Program gets on a GPU, and that integers cost no launches where they come in passing."""

from collections import Counter

from devices.random_model import RandomModel

from hipfire.devices.hip_lowering import Addresses, LaunchSpec, StepShape, lower
from hipfire.devices.hip_plan import plan_program
from hipfire.program import ops
from hipfire.program.program import Program

QUANTISED = RandomModel(dtype="q4_k", n_embd=256, n_ff=512, n_heads=4, head_dim=64, n_layers=2)


def launches(program: Program, *, n_tokens: int = 1, n_compute_units: int = 48) -> list[LaunchSpec]:
    shape = StepShape(n_tokens=n_tokens, n_outputs=n_tokens, n_chunks=1)
    weights = {weight.name: 4096 * i for i, weight in enumerate(program.weights, 1)}
    constants = {op.inverse_frequencies.name: 64 for op in program.ops if isinstance(op, ops.RopeAngles)}
    at = Addresses(
        arena=1 << 20,
        plan=plan_program(program, shape.n_rows, keep=False),
        weights=weights | constants,
        nbytes=dict.fromkeys(weights, 1),
        states={state.name: 1 for state in program.states},
        host_step=1,
        max_tokens=n_tokens,
        token_ids=1,
        positions=1,
        slots=1,
        output_rows=1,
        partials=1,
        partials_nbytes=1 << 20,
        kv_cache="f16",
        max_seq=32,
        lists=1,
        best=1,
        arch="gfx1010",
        n_compute_units=n_compute_units,
    )
    return lower(program, at, shape)


def test_rows_that_only_quantised_weights_read_are_integers_alone() -> None:
    program, _ = QUANTISED.build()
    plan = plan_program(program, lambda buffer: 3, keep=False)
    read = {op.x.name for op in program.ops if isinstance(op, ops.Linear)}
    assert plan.quantised.keys() == read
    assert not read & plan.floats.keys()
    assert plan.floats.keys() == {op.out.name for op in program.ops} - read
    # 2.5 bytes a column.
    assert plan.quantised["blk.0.gated"].nbytes == 3 * 512 * 5 // 2


def test_kept_buffers_are_floats_too() -> None:
    program, _ = QUANTISED.build()
    plan = plan_program(program, lambda buffer: 3, keep=True)
    assert plan.floats.keys() == {op.out.name for op in program.ops}


def test_float_weights_read_floats() -> None:
    program, _ = RandomModel().build()
    plan = plan_program(program, lambda buffer: 3, keep=False)
    assert not plan.quantised
    assert plan.floats.keys() == {op.out.name for op in program.ops}


def test_integers_come_in_passing() -> None:
    program, _ = QUANTISED.build()
    names = Counter(launch.kernel for launch in launches(program))
    assert "quantise" not in names
    written = [launch.arguments for launch in launches(program) if launch.arguments.get("out_q16")]
    # Norms and gates of two layers, their attention, and the last norm.
    assert len(written) == 2 * 4 + 1
    assert all(arguments["out"] is None for arguments in written)


def test_heads_that_share_a_tile_take_a_launch() -> None:
    program, _ = RandomModel(dtype="q8_0", n_embd=64, n_ff=64, n_heads=4, head_dim=16, n_layers=1).build()
    found = [launch for launch in launches(program) if launch.kernel in ("attention_join", "quantise")]
    join, quantise = (launch.arguments for launch in found)
    assert join["out"] == quantise["x"] is not None
    assert join["out_q16"] is None


def test_a_matrix_of_several_formats_reads_both_forms() -> None:
    # The rows of ffn_down are no whole blocks of q4_k, so it is float32.
    program, _ = RandomModel(dtype="q4_k", n_embd=256, n_ff=96, n_heads=4, head_dim=64, n_layers=1).build()
    plan = plan_program(program, lambda buffer: 1, keep=False)
    assert "blk.0.gated" in plan.floats
    assert "blk.0.gated" not in plan.quantised


def test_more_rows_share_the_weights() -> None:
    program, _ = QUANTISED.build()
    for n_tokens, n_compute_units, kind, n_blocks in (
        (1, 48, "few", 1),
        (1, 1, "x1", 1),
        (2, 48, "x4", 1),
        (9, 48, "x4", 3),
    ):
        found = launches(program, n_tokens=n_tokens, n_compute_units=n_compute_units)
        linear = [launch for launch in found if launch.kernel.startswith("linear")]
        assert {launch.kernel for launch in linear} == {f"linear_q4_k_{kind}"}
        assert {launch.grid[1] for launch in linear} == {n_blocks}
