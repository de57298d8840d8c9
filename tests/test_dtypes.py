"""The formats against PyPI's `gguf`, an implementation of its own."""

import gguf
import numpy as np
import pytest

from hipfire.dtypes import BY_GGML_TYPE, DTYPES, DType, dequantize

every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=lambda dtype: dtype.name)


@every_dtype
def test_table_agrees_with_ggml(dtype: DType) -> None:
    ggml_type = gguf.GGMLQuantizationType[dtype.name.upper()]
    assert dtype.ggml_type == ggml_type
    assert (dtype.block, dtype.block_nbytes) == gguf.GGML_QUANT_SIZES[ggml_type]
    assert BY_GGML_TYPE[dtype.ggml_type] is dtype


@every_dtype
def test_random_blocks_dequantise_bit_for_bit(dtype: DType) -> None:
    n_rows, n_columns = 3, 65536 // dtype.block * dtype.block + dtype.block  # more than is unpacked at a time
    data = np.random.default_rng(dtype.ggml_type).integers(0, 256, dtype.nbytes(n_rows * n_columns), np.uint8)
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data.reshape(n_rows, -1), gguf.GGMLQuantizationType(dtype.ggml_type))
    values = dequantize(data, dtype, (n_rows, n_columns))
    assert values.dtype == np.float32
    assert values.shape == expected.shape
    # Random bytes include scales that are NaN; NaNs may differ in their payload.
    numbers = ~np.isnan(expected)
    assert np.array_equal(np.isnan(values), ~numbers)
    assert np.array_equal(values[numbers].view(np.uint32), expected[numbers].view(np.uint32))


@every_dtype
def test_dequantised_values_are_a_copy(dtype: DType) -> None:
    data = np.zeros(dtype.nbytes(2 * dtype.block), np.uint8)
    data.setflags(write=False)  # as a mapped file is
    values = dequantize(data, dtype, (2, dtype.block))
    assert values.flags.writeable
    assert not np.shares_memory(values, data)


@every_dtype
def test_wrong_length_is_an_error(dtype: DType) -> None:
    with pytest.raises(ValueError, match=dtype.name):
        dequantize(np.zeros(dtype.block_nbytes + 1, np.uint8), dtype, (1, dtype.block))


def test_part_of_a_block_is_an_error() -> None:
    with pytest.raises(ValueError, match="33 elements"):
        DTYPES["q8_0"].nbytes(33)
