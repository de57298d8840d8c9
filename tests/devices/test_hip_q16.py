"""The GPU's integer activations and products, to the bit, with waves of 32 and of 64; the kernels run on this CPU."""

import numpy as np
import pytest
from devices.kernel_calls import KernelCalls
from devices.products import linear, packed_matrix
from devices.q16 import ACTIVATIONS, LAYOUTS, integers, product, quantised, unpacked
from numpy.typing import NDArray

from hipfire.devices.hip import HipDevice
from hipfire.dtypes import DTYPES
from hipfire.kernels.hip_table import Q16_TILE_NBYTES
from hipfire.kernels.linear_kinds import QUANTISED_KINDS

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


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_products_are_exact_sums_in_one_order(hip_device: HipDevice, dtype: str) -> None:
    n_out = 43
    for n_in in (DTYPES[dtype].block, 768, 3584 + DTYPES[dtype].block):
        x_q16 = quantised(rows_of_all_kinds(5, n_in).clip(-1e30, 1e30))
        packed = packed_matrix(hip_device, dtype, n_out, n_in)
        expected = product(x_q16, unpacked(packed, dtype, n_in))[:, :n_out]
        with KernelCalls(hip_device) as call:
            for kind in QUANTISED_KINDS:
                assert_bits(linear(call, f"{dtype}_{kind}", packed, x_q16, n_out), expected)


def test_a_row_with_a_value_that_is_not_finite_is_seen_in_every_output(hip_device: HipDevice) -> None:
    x = rows_of_all_kinds(5, 768).clip(-1e30, 1e30)
    packed = packed_matrix(hip_device, "q6_k", 24, 768)
    with KernelCalls(hip_device) as call:
        expected = linear(call, "q6_k_x4", packed, quantised(x), 24)
        for bad in (np.inf, np.nan):
            x[3, 500] = bad
            for kind in QUANTISED_KINDS:
                found = linear(call, f"q6_k_{kind}", packed, quantised(x), 24)
                assert np.isnan(found[3]).all()
                assert_bits(np.delete(found, 3, axis=0), np.delete(expected, 3, axis=0))


def test_a_bias_then_what_was_there_are_added(hip_device: HipDevice) -> None:
    rng = np.random.default_rng(0)
    n_out, x_q16 = 24, quantised(rng.standard_normal((2, 64)).astype(np.float32))
    packed = packed_matrix(hip_device, "q8_0", n_out, 64)
    bias = rng.standard_normal(n_out).astype(np.float32)
    residual = rng.standard_normal((2, n_out)).astype(np.float32)
    out = np.empty_like(residual)
    shape = {"n_out": n_out, "n_in": 64, "width_out": n_out, "column": 0, "n_rows": 2}
    with KernelCalls(hip_device) as call:
        plain = linear(call, "q8_0_x1", packed, x_q16, n_out)
        call("linear_q8_0_x1", (1, 2), packed=packed, x_q16=x_q16, bias=bias, residual=residual, out=out, **shape)
    assert_bits(out, plain + bias + residual)
