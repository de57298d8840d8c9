"""The machine code of attention by itself: every type of state, on the emulated GPUs."""

import pytest
from devices.attention_cases import CASES, Case, assert_attends, assert_stores
from devices.kernel_calls import KernelCalls

from emulator.conftest import OpenDevice
from hipfire.kernels.hip_table import KV_TYPES

pytestmark = pytest.mark.slow  # code objects are translated


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_rows_of_any_slots_however_they_share_a_workgroup(open_hip: OpenDevice, arch: str, case: Case) -> None:
    with KernelCalls(open_hip(arch)) as call:
        assert_attends(call, case)


@pytest.mark.parametrize("kv", KV_TYPES)
def test_keys_and_values_lie_where_they_should(open_hip: OpenDevice, arch: str, kv: str) -> None:
    with KernelCalls(open_hip(arch)) as call:
        assert_stores(call, kv, 80)
