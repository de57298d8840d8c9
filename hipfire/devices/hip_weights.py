"""Weights on their way to a GPU: packed by the CPU's library, side by side in one piece of device memory.

Matrices of one op lie next to each other without a gap, so that one launch can take several of them for one.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.arena import ALIGNMENT
from hipfire.devices.base import Progress, raw_bytes
from hipfire.dtypes import dequantize
from hipfire.errors import DeviceError
from hipfire.hip.runtime import Runtime
from hipfire.kernels.library import Library
from hipfire.program.operands import Constant, Weight
from hipfire.program.program import Program

LOAD_NBYTES = 16
"""The kernels' widest load: every weight begins at a multiple of it, as the size of every packed matrix is one."""


@attrs.frozen(kw_only=True)
class Placement:
    """Where the weights and constants lie in one piece of memory: offsets in bytes by name."""

    offsets: Mapping[str, int]
    nbytes: int


def packed_nbytes(packing: Library, weight: Weight) -> int:
    """Bytes of a weight on the device; vectors are float32."""
    if len(weight.shape) == 1:
        return 4 * weight.n_elements
    return int(packing.packed_nbytes(packing.formats[weight.dtype.name], *weight.shape))


def _constants(program: Program) -> Iterator[Constant]:
    return (operand for op in program.ops for operand in op.operands() if isinstance(operand, Constant))


def place_weights(program: Program, packing: Library) -> Placement:
    """In the order of their first use. Raises DeviceError for a format without kernels."""
    offsets: dict[str, int] = {}
    end = 0

    def place(name: str, nbytes: int) -> None:
        nonlocal end
        if name not in offsets:
            offsets[name] = end
            end += -(-nbytes // LOAD_NBYTES) * LOAD_NBYTES

    for weight in program.weights:
        if weight.dtype.name not in packing.formats:
            raise DeviceError(f"{weight.name}: the hip device has no kernels for {weight.dtype.name}")
        place(weight.name, packed_nbytes(packing, weight))
    for constant in _constants(program):
        place(constant.name, 4 * constant.value.size)
    return Placement(offsets=offsets, nbytes=end)


def upload_weights(
    program: Program,
    tensors: Mapping[str, NDArray[np.uint8]],
    placement: Placement,
    base: int,
    runtime: Runtime,
    packing: Library,
    n_threads: int,
    on_progress: Progress,
) -> None:
    """Pack every weight with `n_threads` and send it to its place after `base`. Raises DeviceError."""
    for constant in _constants(program):
        values = np.ascontiguousarray(constant.value, np.float32)
        runtime.upload(base + placement.offsets[constant.name], values.ctypes.data, values.nbytes)
    pool = packing.pool_open(n_threads, 0)
    if pool is None:
        raise DeviceError(f"{n_threads} threads could not be started", hint="ask for fewer with --threads")
    with ExitStack() as cleanup:
        cleanup.callback(packing.pool_close, pool)
        for weight in program.weights:
            packed = _packed(packing, pool, weight, raw_bytes(weight, tensors))
            offset = placement.offsets[weight.name]
            runtime.upload(base + offset, packed.ctypes.data, packed.nbytes)
            on_progress(min((offset + packed.nbytes) / placement.nbytes, 1.0))


def _packed(packing: Library, pool: int, weight: Weight, raw: NDArray[np.uint8]) -> NDArray[np.generic]:
    if len(weight.shape) == 1:
        return dequantize(raw, weight.dtype, weight.shape)
    nbytes = packed_nbytes(packing, weight)
    memory = np.empty(nbytes + ALIGNMENT, np.uint8)
    packed = memory[-memory.ctypes.data % ALIGNMENT :][:nbytes]
    packing.pack(pool, packing.formats[weight.dtype.name], raw.ctypes.data, packed.ctypes.data, *weight.shape)
    return packed
