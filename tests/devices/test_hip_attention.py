"""The GPU's attention and its states, with waves of 32 and of 64; the kernels run on this CPU."""

import numpy as np
import pytest
from devices.attention_cases import CASES, Case, assert_attends, assert_stores, attend, random_inputs, ways
from devices.kernel_calls import KernelCalls

from hipfire.devices.hip import HipDevice
from hipfire.kernels.hip_table import KV_TYPES

pytestmark = pytest.mark.slow  # the kernels are compiled


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_rows_of_any_slots_however_they_share_a_workgroup(hip_device: HipDevice, case: Case) -> None:
    with KernelCalls(hip_device) as call:
        assert_attends(call, case)


@pytest.mark.parametrize("kv", KV_TYPES)
@pytest.mark.parametrize("dim", [24, 80, 512])
def test_keys_and_values_lie_where_they_should(hip_device: HipDevice, kv: str, dim: int) -> None:
    with KernelCalls(hip_device) as call:
        assert_stores(call, kv, dim)


def test_a_later_value_that_is_infinite_is_not_seen(hip_device: HipDevice) -> None:
    case = Case(kv="f16", n_heads=4, n_kv_heads=1, dim=16, runs=((0, 1, 3),))
    inputs = random_inputs(case)
    inputs.values[0, :, 3] = np.inf
    with KernelCalls(hip_device) as call:
        for way in ways(case):
            found = attend(call, case, inputs, way)
            np.testing.assert_array_equal(np.isfinite(found).all(axis=(1, 2)), [True, True, False])


def test_what_is_not_finite_stays_so_in_q8(hip_device: HipDevice) -> None:
    case = Case(kv="q8", n_heads=1, n_kv_heads=1, dim=64, runs=((0, 1, 1),))
    inputs = random_inputs(case)
    for bad in (np.inf, np.nan):
        qkv = np.ones((1, 3 * 64), np.float32)
        qkv[0, 2 * 64 + 40] = bad
        values = np.zeros(32 * 68, np.uint8)
        with KernelCalls(hip_device) as call:
            call(
                "rope_store_q8", (3, 1),
                qkv=qkv, angles=np.array([[1, 0]], np.float32), q_norm=None, k_norm=None, out=inputs.q,
                positions=case.positions, slots=case.slots, keys=values.copy(), values=values,
                n_heads=1, n_kv_heads=1, dim=64, n_rot=2, interleaved=0, max_seq=32, eps=1e-5,
            )  # fmt: skip
        scales = values.reshape(32, 68)[1, 64:].copy().view(np.float16)
        np.testing.assert_array_equal(np.isfinite(scales), [True, False])
