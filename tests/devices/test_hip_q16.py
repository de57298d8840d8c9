"""The GPU's integer activations and products, to the bit, with waves of 32 and of 64; the kernels run on this CPU."""

import numpy as np
import pytest
from devices.kernel_calls import KernelCalls
from devices.q16 import ACTIVATIONS, integers, quantised
from numpy.typing import NDArray

from hipfire.devices.hip import HipDevice
from hipfire.kernels.hip_table import Q16_TILE_NBYTES

pytestmark = pytest.mark.slow  # the kernels are compiled


def rows_of_all_kinds(n_rows: int, n: int) -> NDArray[np.float32]:
    """Ordinary ones, and tiles of zeros, with an outlier, too small to be divided by, and almost too large."""
    x = np.random.default_rng(n).standard_normal((n_rows, n)).astype(np.float32)
    for tile, change in enumerate((0.0, 1.0, 1e-36, 1e-42, 1e38)):
        x[tile % n_rows, 32 * tile % n : 32 * tile % n + 32] *= np.float32(change)
    x[0, n - 1] = 30000.0
    return x


def assert_bits(*arrays: NDArray[np.generic]) -> None:
    found, expected = (np.ascontiguousarray(array).view(np.uint8) for array in arrays)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("n", [32, 96, 544, 2080])
def test_rows_become_integers_of_16_bits(hip_device: HipDevice, n: int) -> None:
    assert ACTIVATIONS.itemsize == Q16_TILE_NBYTES
    x = rows_of_all_kinds(3, n)
    found = np.empty((3, n // 32), ACTIVATIONS)
    with KernelCalls(hip_device) as call:
        call("quantise", (-(-n // 256), 3), x=x, out_q16=found, n=n)
    assert_bits(found, quantised(x))
    normal = np.abs(x).reshape(3, -1, 32).max(axis=2) > 1e-30
    error = np.abs(integers(found) * found["d"][..., None].astype(np.float64) - x.reshape(3, -1, 32))
    # Half a step, and what the quotient itself is rounded by.
    assert (error[normal] <= 0.504 * found["d"][normal][:, None]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_does_not_vanish(hip_device: HipDevice, bad: float) -> None:
    x = rows_of_all_kinds(1, 96)
    x[0, 40] = bad
    found = np.empty((1, 3), ACTIVATIONS)
    with KernelCalls(hip_device) as call:
        call("quantise", (1, 1), x=x, out_q16=found, n=96)
    np.testing.assert_array_equal(np.isfinite(found["d"]), [[True, False, True]])
    assert not found["hi"][0, 1].any()
    assert not found["whole"][0, 1]


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("n", [32, 1056])
def test_a_norm_writes_its_rows_as_integers_too(hip_device: HipDevice, n: int, residual: bool) -> None:
    rng = np.random.default_rng(n)
    arguments = {
        "x": rows_of_all_kinds(2, n)[:, ::-1].clip(-100, 100).copy(),
        "weight": rng.standard_normal(n).astype(np.float32),
        "residual": rng.standard_normal((2, n)).astype(np.float32) if residual else None,
        "n": n,
        "eps": 1e-5,
    }
    out, out_q16 = np.empty((2, n), np.float32), np.empty((2, n // 32), ACTIVATIONS)
    alone = out_q16.copy()
    with KernelCalls(hip_device) as call:
        call("rms_norm", (2,), out=out, out_q16=out_q16, **arguments)
        call("rms_norm", (2,), out=None, out_q16=alone, **arguments)
    assert_bits(out_q16, quantised(out))
    assert_bits(alone, out_q16)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_a_gate_writes_its_rows_as_integers_too(hip_device: HipDevice, activation: str) -> None:
    n = 288
    x = rows_of_all_kinds(3, 2 * n).clip(-100, 100)
    out, out_q16 = np.empty((3, n), np.float32), np.empty((3, n // 32), ACTIVATIONS)
    with KernelCalls(hip_device) as call:
        call(f"gated_{activation}", (2, 3), x=x, out=out, out_q16=out_q16, n=n)
    assert_bits(out_q16, quantised(out))


@pytest.mark.parametrize("dim", [32, 96, 256])
def test_attention_writes_its_rows_as_integers_too(hip_device: HipDevice, dim: int) -> None:
    partials = np.random.default_rng(dim).standard_normal((2, 3, 2, dim + 2)).astype(np.float32)
    out, out_q16 = np.empty((2, 3 * dim), np.float32), np.empty((2, 3 * dim // 32), ACTIVATIONS)
    shared = {"positions": np.array([5, 200], np.int32), "first_row": 0, "n_heads": 3, "window": 0, "n_chunks": 2}
    with KernelCalls(hip_device) as call:
        call("attention_join", (3, 2), partials=partials, out=out, out_q16=out_q16, dim=dim, **shared)
    assert_bits(out_q16, quantised(out))
