"""The CPU device against the reference, op by op, and its promise: a row's bits depend on nothing but its sequence."""

import threading
from typing import NoReturn

import attrs
import numpy as np
import pytest
from devices.differential import assert_same, compare, joined, limits_for, make_step, rounding_of
from devices.random_model import RandomModel
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Executable, Limits, Step
from hipfire.devices.cpu import CpuDevice
from hipfire.devices.reference import ReferenceDevice
from hipfire.dtypes import DTYPES
from hipfire.errors import DeviceError, StepCancelled
from hipfire.kernels.library import OpKind
from hipfire.kernels.select import machine_variants

TOKENS = [(7 * i * i + 3 * i + 11) % 131 for i in range(75)]

SHAPES = [
    RandomModel(),
    RandomModel(n_heads=6, n_kv_heads=1, head_dim=24, n_embd=40, n_ff=52, tied=False, biases=True),
    RandomModel(n_heads=3, n_kv_heads=3, head_dim=64, n_rot=32, interleaved=False, n_vocab=257),
    RandomModel(n_heads=8, n_kv_heads=2, head_dim=8, n_rot=4, n_ff=33, biases=True),
    RandomModel(n_heads=50, n_kv_heads=1, head_dim=8, n_layers=1),
    RandomModel(architecture="gemma3", n_layers=7, n_kv_heads=1, head_dim=32, window=9, interleaved=False),
]


@pytest.fixture(params=machine_variants())
def device(request: pytest.FixtureRequest) -> CpuDevice:
    return CpuDevice.open(2, variant=request.param)


def prompt_in_two_slots() -> list[Step]:
    """A prompt in two chunks, then one token beside the first chunk of another sequence."""
    first = make_step(TOKENS[:50]), make_step(TOKENS[50:70], start=50, outputs=[19])
    return [*first, joined(make_step(TOKENS[70:71], start=70), make_step(TOKENS[10:33], slot=1))]


@pytest.mark.parametrize("model", SHAPES, ids=range(len(SHAPES)))
def test_every_op_is_the_references_in_float32(device: CpuDevice, model: RandomModel) -> None:
    program, tensors = model.build()
    found = compare(
        program,
        tensors,
        prompt_in_two_slots(),
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=lambda op: 2e-5,
        kv_cache="f32",
    )
    assert_same(found)


@pytest.mark.parametrize(("kv_cache", "head_dim"), [("q16", 64), ("q16", 40), ("q16", 256), ("f16", 64)])
def test_a_state_of_16_bits_costs_its_rounding(device: CpuDevice, kv_cache: str, head_dim: int) -> None:
    program, tensors = RandomModel(head_dim=head_dim).build()
    # Keys and values of 11 bits each, or of 13 by blocks of 32.
    found = compare(
        program,
        tensors,
        prompt_in_two_slots(),
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=rounding_of(3e-3),
        kv_cache=kv_cache,
    )
    assert_same(found)


def test_an_8_bit_state_costs_its_rounding(device: CpuDevice) -> None:
    program, tensors = RandomModel(head_dim=72).build()
    # Keys and values by blocks of 32, each with an error of at most its largest / 254.
    found = compare(
        program,
        tensors,
        prompt_in_two_slots(),
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=rounding_of(1e-1),
        kv_cache="q8",
    )
    assert_same(found)


@pytest.mark.parametrize("dtype", [name for name, dtype in DTYPES.items() if dtype.is_quantised])
def test_every_op_is_the_references_but_for_quantised_activations(device: CpuDevice, dtype: str) -> None:
    program, tensors = RandomModel(dtype=dtype, n_embd=256, n_ff=512, head_dim=64, n_layers=1).build()
    # Activations of 16 bits by blocks of 32: a rounding error of at most max / 65534, here three products deep.
    found = compare(
        program,
        tensors,
        prompt_in_two_slots(),
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=rounding_of(1e-3),
        kv_cache="f32",
    )
    assert_same(found)


def run_chunks(device: CpuDevice, model: RandomModel, kv_cache: str, size: int) -> NDArray[np.float32]:
    """Logits of every row of a prompt that goes in by chunks of this size."""
    program, tensors = model.build()
    limits = Limits(max_tokens=len(TOKENS), max_outputs=len(TOKENS), n_slots=1, max_seq=80, kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    try:
        steps = [make_step(TOKENS[at : at + size], start=at) for at in range(0, len(TOKENS), size)]
        return np.concatenate([executable.run(step, CancelFlag()).whole().copy() for step in steps])
    finally:
        executable.close()


@pytest.mark.parametrize(
    ("dtype", "kv_cache"), [*((dtype, kv) for dtype in DTYPES for kv in ("q16", "q8")), ("f16", "f16"), ("f32", "f32")]
)
def test_chunks_and_threads_do_not_change_a_bit(dtype: str, kv_cache: str) -> None:
    model = RandomModel(dtype=dtype, n_embd=256, n_ff=512, head_dim=64, n_layers=1)
    for variant in machine_variants():
        whole = run_chunks(CpuDevice.open(2, variant=variant), model, kv_cache, len(TOKENS))
        for size in (1, 7, 64):
            found = run_chunks(CpuDevice.open(2, variant=variant), model, kv_cache, size)
            np.testing.assert_array_equal(found.view(np.uint32), whole.view(np.uint32))
        for n_threads in (1, 3):
            found = run_chunks(CpuDevice.open(n_threads, variant=variant), model, kv_cache, 64)
            np.testing.assert_array_equal(found.view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize(
    ("dtype", "kv_cache"), [*((dtype, "q16") for dtype in DTYPES), ("q4_1", "q8"), ("q4_1", "f16"), ("f32", "f32")]
)
def test_variants_with_fused_multiply_add_agree_to_the_bit(dtype: str, kv_cache: str) -> None:
    variants = [variant for variant in machine_variants() if variant != "x86_64"]
    model = RandomModel(dtype=dtype, n_embd=256, n_ff=512, n_heads=6, n_kv_heads=2, head_dim=40, n_layers=1)
    first, *others = (run_chunks(CpuDevice.open(2, variant=variant), model, kv_cache, 64) for variant in variants)
    for found in others:
        np.testing.assert_array_equal(found.view(np.uint32), first.view(np.uint32))


@pytest.mark.parametrize("model", SHAPES, ids=range(len(SHAPES)))
def test_odd_shapes_and_windows_keep_their_bits(device: CpuDevice, model: RandomModel) -> None:
    whole = run_chunks(device, model, "q16", len(TOKENS))
    for size in (1, 7, 64):
        np.testing.assert_array_equal(run_chunks(device, model, "q16", size).view(np.uint32), whole.view(np.uint32))


@pytest.mark.parametrize("n_heads", [3, 5, 9, 50])
def test_heads_that_threads_cannot_share_evenly_keep_their_bits(device: CpuDevice, n_heads: int) -> None:
    model = RandomModel(n_layers=1, n_heads=n_heads, n_kv_heads=1, head_dim=8)
    alone = run_chunks(CpuDevice.open(1, variant=device.variant), model, "q16", len(TOKENS))
    for n_threads in (2, 4):
        several = CpuDevice.open(n_threads, variant=device.variant)
        for size in (1, len(TOKENS)):
            found = run_chunks(several, model, "q16", size)
            np.testing.assert_array_equal(found.view(np.uint32), alone.view(np.uint32))


def test_what_shares_the_step_does_not_change_a_bit(device: CpuDevice) -> None:
    program, tensors = RandomModel(dtype="q4_1", head_dim=32).build()
    alone = [make_step(TOKENS[:40], slot=0), make_step(TOKENS[40:41], start=40, slot=0)]
    other = [make_step(TOKENS[30:63], slot=1), make_step(TOKENS[63:70], start=33, slot=1)]
    together = [joined(other[0], alone[0]), joined(alone[1], other[1])]
    limits = limits_for([*together])
    apart = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    batched = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    for step in other:
        apart.run(step, CancelFlag())
    expected = [apart.run(step, CancelFlag()).whole().copy() for step in alone]
    first = batched.run(together[0], CancelFlag()).whole()[33:].copy()
    second = batched.run(together[1], CancelFlag()).whole()[:1].copy()
    np.testing.assert_array_equal(first.view(np.uint32), expected[0].view(np.uint32))
    np.testing.assert_array_equal(second.view(np.uint32), expected[1].view(np.uint32))


@pytest.mark.parametrize("window", [None, 9])
def test_rows_may_come_in_any_order(device: CpuDevice, window: int | None) -> None:
    program, tensors = RandomModel(head_dim=32, window=window).build()
    step = joined(make_step(TOKENS[:60]), make_step(TOKENS[30:70], slot=1))
    executable = device.load(program, tensors, limits_for([step]), on_progress=lambda fraction: None)
    expected = executable.run(step, CancelFlag()).whole().copy()
    for order in (np.arange(100)[::-1], np.random.default_rng(3).permutation(100)):
        mixed = attrs.evolve(
            step, token_ids=step.token_ids[order], positions=step.positions[order], slots=step.slots[order]
        )
        found = executable.run(mixed, CancelFlag()).whole()
        np.testing.assert_array_equal(found.view(np.uint32), expected[order].view(np.uint32))


def test_a_step_may_be_of_views(device: CpuDevice) -> None:
    program, tensors = RandomModel(head_dim=32).build()
    step = make_step(TOKENS[:30])
    executable = device.load(program, tensors, limits_for([step]), on_progress=lambda fraction: None)
    expected = executable.run(step, CancelFlag()).whole().copy()
    views = {name: np.repeat(array, 2)[::2] for name, array in attrs.asdict(step).items()}
    found = executable.run(Step(**views), CancelFlag()).whole()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_sequences_whose_positions_follow_each_other_stay_apart(device: CpuDevice) -> None:
    program, tensors = RandomModel(head_dim=32).build()
    starts = [29, 30, 31, 32]
    prompts = [make_step(TOKENS[slot : slot + start], slot=slot) for slot, start in enumerate(starts)]
    following = [make_step([slot], start=start, slot=slot) for slot, start in enumerate(starts)]
    executable = device.load(program, tensors, limits_for([joined(*prompts), *following]), on_progress=lambda _: None)
    executable.run(joined(*prompts), CancelFlag())
    alone = np.concatenate([executable.run(step, CancelFlag()).whole().copy() for step in following])
    together = executable.run(joined(*following), CancelFlag()).whole()
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))


def run_until_cancelled(executable: Executable, step: Step, cancel: CancelFlag) -> NoReturn:
    while True:
        executable.run(step, cancel)


def test_cancelling_stops_a_step(device: CpuDevice) -> None:
    program, tensors = RandomModel(n_layers=40, n_embd=256, n_ff=512).build()
    step = make_step(TOKENS)
    executable = device.load(program, tensors, limits_for([step]), on_progress=lambda fraction: None)
    expected = executable.run(step, CancelFlag()).whole().copy()
    before = CancelFlag()
    before.set()
    with pytest.raises(StepCancelled):
        executable.run(step, before)
    during = CancelFlag()
    # Wherever it hits, the executable goes on working.
    timer = threading.Timer(0.001, during.set)
    timer.start()
    with pytest.raises(StepCancelled):
        run_until_cancelled(executable, step, during)
    timer.join()
    np.testing.assert_array_equal(executable.run(step, CancelFlag()).whole(), expected)


def test_a_step_that_was_cancelled_before_it_began_writes_nothing(device: CpuDevice) -> None:
    program, tensors = RandomModel().build()
    step, cancel = make_step(TOKENS), CancelFlag()
    executable = device.load(program, tensors, limits_for([step]), on_progress=lambda fraction: None)
    cancel.set()
    with pytest.raises(StepCancelled):
        executable.run(step, cancel)
    assert not executable._arena.any()  # noqa: SLF001  (where all that the ops write lies)


def test_each_op_is_timed_when_asked(device: CpuDevice) -> None:
    program, tensors = RandomModel(dtype="q8_0", n_embd=64, n_ff=96).build()
    executable = device.load(program, tensors, limits_for([make_step(TOKENS)]), on_progress=lambda fraction: None)
    op_ns = np.full(len(executable.op_kinds), -1, np.int64)
    expected = executable.run(make_step(TOKENS), CancelFlag()).whole().copy()
    found = executable.run(make_step(TOKENS), CancelFlag(), op_ns=op_ns).whole()
    np.testing.assert_array_equal(found, expected)
    assert (op_ns > 0).all()
    n_quantising = sum(kind == OpKind.QUANTISE for kind in executable.op_kinds)
    assert len(executable.op_kinds) == len(program.ops) + n_quantising


def test_a_step_beyond_the_limits_is_refused(device: CpuDevice) -> None:
    program, tensors = RandomModel().build()
    executable = device.load(program, tensors, limits_for([make_step(TOKENS)]), on_progress=lambda fraction: None)
    for step in (
        make_step([*TOKENS, 1]),
        make_step([131]),
        make_step([-1]),
        make_step([1], start=len(TOKENS)),
        make_step([1], slot=1),
        make_step([1], outputs=[1]),
    ):
        with pytest.raises(ValueError, match=r"do not fit|that is no int32 of 0\.\."):
            executable.run(step, CancelFlag())


def test_what_the_device_lacks_is_an_error() -> None:
    program, tensors = RandomModel().build()
    limits = Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=32, kv_cache="q4")
    with pytest.raises(DeviceError, match="q4"):
        CpuDevice.open(1).load(program, tensors, limits, on_progress=lambda fraction: None)
    with pytest.raises(DeviceError, match="0 threads"):
        CpuDevice.open(0)
    with pytest.raises(DeviceError, match="avx1024"):
        CpuDevice.open(1, variant="x86_64_avx1024")
