"""The HIP device against the reference, op by op, and its promise: a row's bits depend on nothing but its sequence.

Its kernels' sources run on this CPU; whether the machine code does the same is seen in tests/emulator.
"""

from collections.abc import Iterator

import attrs
import numpy as np
import pytest
from devices.differential import assert_same, compare, joined, make_step, tolerance_of
from devices.given_logits import assert_finds_the_best, assert_sees_what_is_not_finite, table_of
from devices.random_model import RandomModel
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.hip import HipDevice
from hipfire.devices.hip_lowering import partial_nbytes
from hipfire.devices.reference import ReferenceDevice
from hipfire.dtypes import DTYPES
from hipfire.errors import DeviceError, DeviceLost, OutOfMemory, StepCancelled
from hipfire.hip.runtime import Runtime
from hipfire.program import ops

pytestmark = pytest.mark.slow  # the kernels are compiled

TOKENS = [(7 * i * i + 3 * i + 11) % 131 for i in range(200)]

SHAPES = [
    RandomModel(n_layers=1),
    RandomModel(n_heads=6, n_kv_heads=1, head_dim=24, n_embd=40, n_ff=52, tied=False, biases=True, n_layers=1),
    RandomModel(n_heads=3, n_kv_heads=3, head_dim=64, n_rot=32, interleaved=False, n_vocab=257, n_layers=1),
    RandomModel(n_heads=8, n_kv_heads=2, head_dim=8, n_rot=4, n_ff=33, biases=True, n_layers=1),
    RandomModel(architecture="gemma3", n_layers=1, n_heads=2, n_kv_heads=1, head_dim=256, window=9, interleaved=False),
]


@pytest.fixture
def device(hip_device: HipDevice) -> HipDevice:
    return hip_device


@pytest.fixture
def nothing_is_left(device: HipDevice) -> Iterator[None]:
    before = device.free_nbytes()
    yield
    assert device.free_nbytes() == before


def prompt_in_two_slots() -> list[Step]:
    """A prompt in two chunks, then one token beside the first chunk of another sequence."""
    first = make_step(TOKENS[:10]), make_step(TOKENS[10:14], start=10, outputs=[3])
    return [*first, joined(make_step(TOKENS[14:15], start=14), make_step(TOKENS[10:17], slot=1))]


@pytest.mark.parametrize("model", SHAPES, ids=range(len(SHAPES)))
def test_every_op_is_the_references(device: HipDevice, model: RandomModel) -> None:
    program, tensors = model.build()
    reference = ReferenceDevice.open(None)
    found = compare(
        program,
        tensors,
        prompt_in_two_slots(),
        actual=device,
        expected=reference,
        tolerance=tolerance_of("f32"),
        kv_cache="f32",
    )
    assert_same(found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_is_the_references(device: HipDevice, dtype: str) -> None:
    program, tensors = RandomModel(dtype=dtype, n_embd=256, n_ff=512, head_dim=64, n_layers=1, n_vocab=41).build()
    found = compare(
        program,
        tensors,
        [make_step([3, 40, 30, 7, 39])],
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=tolerance_of(dtype),
        kv_cache="f32",
    )
    assert_same(found)


def test_a_context_of_several_chunks_is_the_references(device: HipDevice) -> None:
    program, tensors = RandomModel(n_layers=1, n_heads=2, n_kv_heads=1).build()
    steps = [make_step(TOKENS[:130], outputs=[129]), make_step(TOKENS[130:132], start=130)]
    found = compare(
        program,
        tensors,
        steps,
        actual=device,
        expected=ReferenceDevice.open(None),
        tolerance=tolerance_of("f32"),
        kv_cache="f32",
    )
    assert_same(found)


def run_chunks(device: HipDevice, model: RandomModel, kv_cache: str, size: int, n: int) -> NDArray[np.float32]:
    """Logits of the last rows of chunks of this size that a prompt of n tokens goes in by."""
    program, tensors = model.build()
    limits = Limits(max_tokens=n, max_outputs=1, n_slots=1, max_seq=n, kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    try:
        for at in range(0, n, size):
            chunk = TOKENS[at : min(at + size, n)]
            logits = executable.run(make_step(chunk, start=at, outputs=[len(chunk) - 1]), CancelFlag()).whole()
        return logits.copy()
    finally:
        executable.close()


def test_rows_that_attention_has_no_room_for_at_once_come_in_parts(
    device: HipDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = RandomModel(n_layers=1, n_embd=32, n_ff=32)
    program, _ = model.build()
    limits = Limits(max_tokens=11, max_outputs=1, n_slots=1, max_seq=11, kv_cache="f16")
    expected, needed = run_chunks(device, model, "f16", 11, 11), device.load_nbytes(program, limits)
    (attention,) = (op for op in program.ops if isinstance(op, ops.Attention))
    a_row = partial_nbytes(attention, 1)
    # Parts of 4, 4 and 3 rows.
    monkeypatch.setattr("hipfire.devices.hip.MAX_PARTIALS_NBYTES", 5 * a_row - 1)
    assert device.load_nbytes(program, limits) == needed - 7 * a_row
    np.testing.assert_array_equal(run_chunks(device, model, "f16", 11, 11).view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize(("dtype", "kv_cache"), [("f16", "f16"), ("q4_1", "f32"), ("q6_k", "q8")])
def test_chunks_do_not_change_a_bit(device: HipDevice, dtype: str, kv_cache: str) -> None:
    model = RandomModel(dtype=dtype, n_embd=256, n_ff=256, n_heads=2, n_kv_heads=1, n_layers=1)
    whole = run_chunks(device, model, kv_cache, 11, 11)
    for size in (1, 5):
        found = run_chunks(device, model, kv_cache, size, 11)
        np.testing.assert_array_equal(found.view(np.uint32), whole.view(np.uint32))


def test_many_rows_at_once_do_not_change_a_bit(device: HipDevice) -> None:
    # On a card that is soon filled they go by the kernel for many rows, whose workgroups have 64.
    device = HipDevice(device.library, attrs.evolve(device.gpu, n_compute_units=1), device.packing, 1)
    model = RandomModel(dtype="q5_1", n_embd=256, n_ff=256, n_heads=2, n_kv_heads=1, n_layers=1)
    whole = run_chunks(device, model, "f16", 64, 64)
    np.testing.assert_array_equal(run_chunks(device, model, "f16", 20, 64).view(np.uint32), whole.view(np.uint32))


def test_a_long_prompt_keeps_its_bits_over_the_borders_of_chunks(device: HipDevice) -> None:
    model = RandomModel(n_layers=1, n_heads=1, n_kv_heads=1, n_embd=32, n_ff=32, window=70, architecture="gemma3")
    whole = run_chunks(device, model, "f16", 132, 132)
    found = run_chunks(device, model, "f16", 64, 132)
    np.testing.assert_array_equal(found.view(np.uint32), whole.view(np.uint32))


def test_what_shares_the_step_does_not_change_a_bit(device: HipDevice) -> None:
    program, tensors = RandomModel(dtype="q4_1", head_dim=32, n_layers=1).build()
    alone, other = make_step(TOKENS[:5], slot=0), make_step(TOKENS[30:37], slot=1)
    limits = Limits(max_tokens=12, max_outputs=12, n_slots=2, max_seq=32)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    expected = executable.run(alone, CancelFlag()).whole().copy()
    found = executable.run(joined(other, alone), CancelFlag()).whole()[7:].copy()
    executable.close()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_a_copied_state_goes_on_as_the_original(device: HipDevice) -> None:
    # Several heads: each has a plane of its own, and the last one's lies far from the first one's.
    program, tensors = RandomModel(n_layers=2, n_embd=32, n_ff=32, n_heads=2, n_kv_heads=2).build()
    limits = Limits(max_tokens=37, max_outputs=37, n_slots=3, max_seq=64, kv_cache="q8")
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    executable.run(make_step(TOKENS[:37], slot=0), CancelFlag())
    expected = executable.run(make_step(TOKENS[37:40], start=37, slot=0), CancelFlag()).whole().copy()
    # What the copy does not replace is another sequence's.
    executable.run(make_step(TOKENS[50:56], slot=2), CancelFlag())
    executable.copy_state(0, 2, 37)
    found = executable.run(make_step(TOKENS[37:40], start=37, slot=2), CancelFlag()).whole().copy()
    executable.close()
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.usefixtures("nothing_is_left")
@pytest.mark.parametrize("n_vocab", [5, 4096, 8197])
def test_the_best_logits_are_found_on_the_device(device: HipDevice, n_vocab: int) -> None:
    assert_finds_the_best(device, table_of(n_vocab))


@pytest.mark.parametrize("n_vocab", [5, 4097])
def test_a_logit_that_is_not_finite_is_seen_on_the_device(device: HipDevice, n_vocab: int) -> None:
    assert_sees_what_is_not_finite(device, n_vocab)


@pytest.mark.usefixtures("nothing_is_left")
def test_too_large_a_model_says_what_was_needed_and_leaves_nothing(device: HipDevice) -> None:
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=8, max_outputs=1, n_slots=8, max_seq=1 << 20)
    with pytest.raises(OutOfMemory, match=r"the KV cache needs 512 MiB of the GPU's memory, \d+ of 1024 MiB are free"):
        device.load(program, tensors, limits, on_progress=lambda fraction: None)


@pytest.mark.usefixtures("nothing_is_left")
def test_load_nbytes_is_what_load_takes_and_close_gives_back(device: HipDevice) -> None:
    program, tensors = RandomModel(dtype="q4_1", n_layers=2).build()
    limits = Limits(max_tokens=16, max_outputs=2, n_slots=2, max_seq=100)
    before = device.free_nbytes()
    progress: list[float] = []
    executable = device.load(program, tensors, limits, on_progress=progress.append)
    now = device.free_nbytes()
    assert before is not None
    assert now is not None
    promised = device.load_nbytes(program, limits)
    assert executable.memory_nbytes == promised
    # The host's pinned memory for a step's numbers and logits is counted here too.
    assert promised <= before - now <= promised + 4096
    assert progress == sorted(progress)
    assert progress[-1] <= 1.0
    executable.close()
    executable.close()
    with pytest.raises(DeviceError, match="closed"):
        executable.run(make_step([1]), CancelFlag())


def test_an_integrated_gpu_has_what_the_host_can_give(device: HipDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, int | None]] = []

    def shared(pci: str, host_nbytes: int | None) -> int:
        asked.append((pci, host_nbytes))
        return 12345

    monkeypatch.setattr("hipfire.devices.hip.shared_free_nbytes", shared)
    monkeypatch.setattr("hipfire.devices.hip.available_nbytes", lambda: 67890)
    assert device.free_nbytes() != 12345
    integrated = HipDevice(device.library, attrs.evolve(device.gpu, integrated=True), device.packing, 1)
    assert integrated.free_nbytes() == 12345
    assert asked == [(device.gpu.pci, 67890)]


def test_what_the_kernels_cannot_do_is_refused_before_anything_is_taken(device: HipDevice) -> None:
    program, _ = RandomModel(head_dim=12).build()
    limits = Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=8)
    with pytest.raises(DeviceError, match="heads of 12"):
        device.load_nbytes(program, limits)
    program, _ = RandomModel().build()
    with pytest.raises(DeviceError, match="no q4 KV cache"):
        device.load_nbytes(program, Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=8, kv_cache="q4"))


def test_a_set_flag_cancels_a_step(device: HipDevice) -> None:
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=4, max_outputs=1, n_slots=1, max_seq=8)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    flag = CancelFlag()
    flag.set()
    with pytest.raises(StepCancelled):
        executable.run(make_step([1], outputs=[0]), flag)
    executable.close()


def test_a_flag_that_is_set_while_the_step_runs_cancels_it(device: HipDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=4, max_outputs=1, n_slots=1, max_seq=8)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    flag, synchronize = CancelFlag(), Runtime.synchronize

    def cancelled_meanwhile(self: Runtime) -> None:
        flag.set()
        synchronize(self)

    monkeypatch.setattr(Runtime, "synchronize", cancelled_meanwhile)
    with pytest.raises(StepCancelled):
        executable.run(make_step([1], outputs=[0]), flag)
    monkeypatch.undo()
    executable.close()


def test_a_launch_that_fails_loses_the_gpu(device: HipDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=4, max_outputs=1, n_slots=1, max_seq=8)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    monkeypatch.setattr(device.packing, "launch", lambda *arguments: 719)
    with pytest.raises(DeviceLost, match="hipErrorLaunchFailure"):
        executable.run(make_step([1], outputs=[0]), CancelFlag())
    executable.close()


def test_a_gpu_that_fails_is_lost(device: HipDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    program, tensors = RandomModel(n_layers=1).build()
    limits = Limits(max_tokens=4, max_outputs=1, n_slots=1, max_seq=8)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)

    def fail(self: Runtime) -> None:
        raise self.error(719)

    monkeypatch.setattr(Runtime, "synchronize", fail)
    with pytest.raises(DeviceLost, match="hipErrorLaunchFailure"):
        executable.run(make_step([1], outputs=[0]), CancelFlag())
    monkeypatch.undo()
    executable.close()
