"""Every format's matrix product on every variant this machine runs: right, and with the same bits in every shape."""

import numpy as np
import pytest
from devices.random_model import BLOCK_SCALES
from numpy.typing import NDArray
from one_product import N_IN, N_OUT, N_VOCAB, load, random_weight, run

from hipfire.devices.base import Limits
from hipfire.devices.cpu import CpuDevice
from hipfire.dtypes import DTYPES, DType, dequantize
from hipfire.kernels.select import machine_variants
from hipfire.program.operands import Weight
from hipfire.program.program import Builder


def quantised(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """What is left of activations that go through int16 by blocks of 32."""
    blocks = x.reshape(-1, 32)
    top = np.abs(blocks).max(1, keepdims=True)
    return (np.rint(blocks * (np.float32(32767) / top)) * (top / np.float32(32767))).reshape(x.shape)


@pytest.fixture(params=machine_variants())
def variant(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_product_is_that_of_the_dequantised_weights(dtype: DType, variant: str) -> None:
    rng = np.random.default_rng(7)
    raw = random_weight(dtype, 7)
    inputs = rng.standard_normal((N_VOCAB, N_IN)).astype(np.float32)
    found = run(load(dtype, raw, inputs, variant=variant), np.arange(9, dtype=np.int32))
    weight = dequantize(raw, dtype, (N_OUT, N_IN)).astype(np.float64)
    seen = quantised(inputs[:9]) if dtype.is_quantised else inputs[:9]
    expected = seen.astype(np.float64) @ weight.T
    scale = np.abs(seen).astype(np.float64) @ np.abs(weight).T
    # 512 float32 additions, hence far below 512 * 2**-24 of the terms' sizes.
    np.testing.assert_array_less(np.abs(found - expected) / scale, 4e-6)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_a_row_has_the_same_bits_alone_and_among_others(dtype: DType, variant: str) -> None:
    rng = np.random.default_rng(11)
    raw = random_weight(dtype, 7)
    inputs = rng.standard_normal((N_VOCAB, N_IN)).astype(np.float32)
    ids = np.arange(N_VOCAB, dtype=np.int32)
    executable = load(dtype, raw, inputs, variant=variant)
    together = run(executable, ids)
    for size in (1, 2, 3, 5, 8, 13, 133, 143):
        pieces = [run(executable, ids[at : at + size]) for at in range(0, N_VOCAB, size)]
        np.testing.assert_array_equal(np.concatenate(pieces).view(np.uint32), together.view(np.uint32))
    for n_threads in (1, 3):
        other = run(load(dtype, raw, inputs, variant=variant, n_threads=n_threads), ids)
        np.testing.assert_array_equal(other.view(np.uint32), together.view(np.uint32))


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_embedding_gives_the_dequantised_rows(dtype: DType, variant: str) -> None:
    raw = random_weight(dtype, 13)
    table = Weight(name="table", dtype=dtype, shape=(N_OUT, N_IN))
    builder = Builder()
    program = builder.finish(builder.gather_outputs("x", builder.embed("rows", table)))
    limits = Limits(max_tokens=N_OUT, max_outputs=N_OUT, n_slots=1, max_seq=N_OUT)
    device = CpuDevice.open(2, variant=variant)
    executable = device.load(program, {"table": raw}, limits, on_progress=lambda fraction: None)
    found = run(executable, np.arange(N_OUT, dtype=np.int32))
    expected = dequantize(raw, dtype, (N_OUT, N_IN))
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=np.abs(expected).max() * 1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["f32", "q8_0", "q4_1", "q6_k"])
def test_one_element_that_is_no_number_shows_in_every_output_of_its_row(name: str, value: float, variant: str) -> None:
    dtype = DTYPES[name]
    inputs = np.random.default_rng(19).standard_normal((N_VOCAB, N_IN)).astype(np.float32)
    raw, ids = random_weight(dtype, 19), np.arange(9, dtype=np.int32)
    clean = run(load(dtype, raw, inputs, variant=variant), ids)
    # One in a block of 32 among numbers, at the ends of vectors and blocks.
    at = [0, 7, 8, 17, 31, 32, N_IN - 32, N_IN - 1]
    inputs[np.arange(1, 9), at] = value
    found = run(load(dtype, raw, inputs, variant=variant), ids)
    np.testing.assert_array_equal(found[0].view(np.uint32), clean[0].view(np.uint32))
    assert not np.isfinite(found[1:]).any()


def test_largest_integers_do_not_overflow(variant: str) -> None:
    for name in BLOCK_SCALES:
        dtype = DTYPES[name]
        rng = np.random.default_rng(17)
        for fill in (0, 127, 128, 255):
            raw = random_weight(dtype, fill).reshape(-1, dtype.block_nbytes)
            halves = [index for at in BLOCK_SCALES[name] for index in (at, at + 1)]
            quants = np.setdiff1d(np.arange(dtype.block_nbytes), halves)
            raw[:, quants] = fill
            inputs = np.where(rng.random((N_VOCAB, N_IN)) < 0.5, -1, 1).astype(np.float32)
            inputs[0], inputs[1] = 1, -1
            found = run(load(dtype, raw.reshape(-1), inputs, variant=variant), np.arange(8, dtype=np.int32))
            weight = dequantize(raw.reshape(-1), dtype, (N_OUT, N_IN)).astype(np.float64)
            expected = inputs[:8].astype(np.float64) @ weight.T
            scale = np.abs(weight).sum(1) + 1e-30
            assert (np.abs(found - expected) / scale).max() < 2e-5, (name, fill)
