"""What the CPU device holds when a load succeeds, fails, or is undone; and what it refuses to read or to count."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from devices.differential import make_step
from devices.random_model import RandomModel
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits
from hipfire.devices.cpu import CpuDevice
from hipfire.errors import DeviceError, OutOfMemory, StepCancelled
from hipfire.kernels.select import machine_variants

PROGRAM, TENSORS = RandomModel(dtype="q8_0").build()
LIMITS = Limits(max_tokens=4, max_outputs=4, n_slots=1, max_seq=32)
MATRIX, VECTOR = "blk.0.ffn_up.weight", "output_norm.weight"


def n_native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def fail_to_report(fraction: float) -> None:
    raise StepCancelled(f"at {fraction}")


@pytest.mark.parametrize(
    ("name", "nbytes"), [(MATRIX, None), (MATRIX, -1), (MATRIX, 1), (VECTOR, None), (VECTOR, -4), (VECTOR, 4)]
)
def test_tensors_that_are_not_the_programs_are_refused(name: str, nbytes: int | None) -> None:
    tensors: Mapping[str, NDArray[np.uint8]] = {other: data for other, data in TENSORS.items() if other != name}
    if nbytes is not None:
        tensors |= {name: np.zeros(TENSORS[name].size + nbytes, np.uint8)}
    before = n_native_threads()
    with pytest.raises(DeviceError, match=name):
        CpuDevice.open(3).load(PROGRAM, tensors, LIMITS, on_progress=lambda fraction: None)
    assert n_native_threads() == before


def test_a_load_that_is_interrupted_leaves_no_threads() -> None:
    before = n_native_threads()
    with pytest.raises(StepCancelled):
        CpuDevice.open(3).load(PROGRAM, TENSORS, LIMITS, on_progress=fail_to_report)
    assert n_native_threads() == before


def test_memory_that_the_system_refuses_is_an_error_of_its_own() -> None:
    # More than the address space has.
    limits = Limits(max_tokens=4, max_outputs=4, n_slots=2**20, max_seq=2**30)
    before = n_native_threads()
    with pytest.raises(OutOfMemory, match="not enough memory for the model"):
        CpuDevice.open(3).load(PROGRAM, TENSORS, limits, on_progress=lambda fraction: None)
    assert n_native_threads() == before


@pytest.mark.parametrize(
    "limits",
    [
        Limits(max_tokens=4, max_outputs=4, n_slots=1, max_seq=2**31 - 31),
        Limits(max_tokens=4, max_outputs=4, n_slots=1, max_seq=2**32 + 32),
        Limits(max_tokens=4, max_outputs=4, n_slots=2**32 + 1, max_seq=32),
        Limits(max_tokens=2**32 + 1, max_outputs=4, n_slots=1, max_seq=32),
    ],
)
def test_numbers_that_do_not_fit_the_kernels_are_refused_and_not_cut_off(limits: Limits) -> None:
    device = CpuDevice.open(1)
    with pytest.raises(DeviceError, match="counts up to 2147483647"):
        device.load_nbytes(PROGRAM, limits)
    with pytest.raises(DeviceError, match="counts up to 2147483647"):
        device.load(PROGRAM, TENSORS, limits, on_progress=lambda fraction: None)


def test_a_load_takes_what_was_told_but_for_alignment() -> None:
    device = CpuDevice.open(1)
    executable = device.load(PROGRAM, TENSORS, LIMITS, on_progress=lambda fraction: None)
    told = device.load_nbytes(PROGRAM, LIMITS)
    assert told <= executable.memory_nbytes <= told + 64 * len(PROGRAM.weights)


def test_closing_twice_ends_the_threads_once_and_leaves_the_last_logits() -> None:
    before = n_native_threads()
    executable = CpuDevice.open(3).load(PROGRAM, TENSORS, LIMITS, on_progress=lambda fraction: None)
    assert n_native_threads() == before + 2
    logits = executable.run(make_step([1, 2]), CancelFlag()).whole()
    kept = logits.copy()
    executable.close()
    executable.close()
    assert n_native_threads() == before
    np.testing.assert_array_equal(logits, kept)
    with pytest.raises(DeviceError, match="closed"):
        executable.run(make_step([1]), CancelFlag())


def test_progress_ends_at_one() -> None:
    seen: list[float] = []
    CpuDevice.open(1).load(PROGRAM, TENSORS, LIMITS, on_progress=seen.append).close()
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_buffers_can_be_read_only_where_they_were_kept() -> None:
    executable = CpuDevice.open(1).load(PROGRAM, TENSORS, LIMITS, on_progress=lambda fraction: None)
    executable.run(make_step([1]), CancelFlag())
    with pytest.raises(DeviceError, match="not kept"):
        executable.read(PROGRAM.logits)


@pytest.mark.parametrize("variant", machine_variants())
def test_kept_buffers_do_not_change_a_bit(variant: str) -> None:
    step, device = make_step([5, 9, 2, 7]), CpuDevice.open(2, variant=variant)
    found = []
    for keep in (False, True):
        executable = device.load(PROGRAM, TENSORS, LIMITS, on_progress=lambda _: None, keep_buffers=keep)
        found.append(executable.run(step, CancelFlag()).whole().copy())
        executable.close()
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1].view(np.uint32))
