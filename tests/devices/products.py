"""Products with quantised weights by one kernel of a HIP device."""

import numpy as np
from devices.kernel_calls import KernelCalls
from devices.random_model import random_bytes
from numpy.typing import NDArray

from hipfire.devices.hip import HipDevice
from hipfire.dtypes import DTYPES
from hipfire.kernels.linear_kinds import QUANTISED_KINDS


def packed_matrix(device: HipDevice, dtype: str, n_out: int, n_in: int) -> NDArray[np.uint8]:
    """Random weights as they lie on the device."""
    raw = random_bytes(np.random.default_rng(n_in), DTYPES[dtype], (n_out, n_in), n_in**-0.5)
    packing = device.packing
    packed = np.empty(packing.packed_nbytes(packing.formats[dtype], n_out, n_in), np.uint8)
    pool = packing.pool_open(1, 0)
    packing.pack(pool, packing.formats[dtype], raw.ctypes.data, packed.ctypes.data, n_out, n_in)
    packing.pool_close(pool)
    return packed


def linear(
    call: KernelCalls, name: str, packed: NDArray[np.uint8], x_q16: NDArray[np.void], n_out: int
) -> NDArray[np.float32]:
    """A kernel's output for all rows, beside a column that is another matrix's."""
    of = QUANTISED_KINDS[name.rpartition("_")[2]]
    n_rows, n_tiles = x_q16.shape
    out = np.full((n_rows, n_out + 1), 7.0, np.float32)
    grid = (-(-n_out // (8 * of.n_groups)), -(-n_rows // of.n_rows))
    shape = {"n_out": n_out, "n_in": 32 * n_tiles, "width_out": n_out + 1, "column": 1, "n_rows": n_rows}
    call(f"linear_{name}", grid, packed=packed, x_q16=x_q16, bias=None, residual=None, out=out, **shape)
    assert (out[:, 0] == 7.0).all()
    return out[:, 1:]
