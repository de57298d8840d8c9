"""The machine code of integer activations and products, to the bit: the same numbers on every architecture."""

import numpy as np
import pytest
from devices.kernel_calls import KernelCalls
from devices.q16 import ACTIVATIONS, quantised

from emulator.conftest import OpenDevice

pytestmark = pytest.mark.slow  # code objects are translated


def test_rows_become_integers_of_16_bits(open_hip: OpenDevice, arch: str) -> None:
    n = 1056
    x = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    x[1, :96].reshape(3, 32)[:] *= np.float32([[0], [1e-42], [1e38]])
    found = np.empty((2, n // 32), ACTIVATIONS)
    with KernelCalls(open_hip(arch)) as call:
        call("quantise", (-(-n // 256), 2), x=x, out_q16=found, n=n)
        np.testing.assert_array_equal(found.view(np.uint8), quantised(x).view(np.uint8))
