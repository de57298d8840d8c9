"""The numbers of a quantised matrix product on the GPU, in NumPy: what the kernels must give, to the bit.

Weights are taken apart by layout.h, activations become integers as in activations.h, and the sums are made in the order
of strands.h. Knows no kernels.
"""

from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.arena import ALIGNMENT
from hipfire.dtypes import DTYPES
from hipfire.kernels.library import Library

Floats = NDArray[np.float32]
Integers = NDArray[np.int32]
Bytes = NDArray[np.uint8]

STRANDS, TILE, GROUP, LARGEST_Q = 16, 32, 8, 32512


@attrs.frozen(kw_only=True)
class Layout:
    """A row of layout.h. `scales`: d, dm, k, k16 or k16m. `halves`: where a raw block has its float16 numbers."""

    low: int
    high: int
    scales: str
    offset: int
    halves: tuple[int, ...]


LAYOUTS = {
    "q4_0": Layout(low=4, high=0, scales="d", offset=8, halves=(0,)),
    "q4_1": Layout(low=4, high=0, scales="dm", offset=0, halves=(0, 2)),
    "q5_0": Layout(low=4, high=1, scales="d", offset=16, halves=(0,)),
    "q5_1": Layout(low=4, high=1, scales="dm", offset=0, halves=(0, 2)),
    "q8_0": Layout(low=8, high=0, scales="d", offset=0, halves=(0,)),
    "q2_k": Layout(low=2, high=0, scales="k16m", offset=0, halves=(80, 82)),
    "q3_k": Layout(low=2, high=1, scales="k16", offset=4, halves=(108,)),
    "q4_k": Layout(low=4, high=0, scales="k", offset=0, halves=(0, 2)),
    "q5_k": Layout(low=4, high=1, scales="k", offset=0, halves=(0, 2)),
    "q6_k": Layout(low=4, high=2, scales="k16", offset=32, halves=(208,)),
}


def random_matrix(rng: np.random.Generator, dtype: str, n_out: int, n_in: int) -> Bytes:
    """Raw blocks of random bits, with scales as models have them."""
    blocks = rng.integers(0, 256, (n_out * n_in // DTYPES[dtype].block, DTYPES[dtype].block_nbytes), np.uint8)
    for at in LAYOUTS[dtype].halves:
        blocks[:, at : at + 2] = rng.normal(0, 0.02, (len(blocks), 1)).astype(np.float16).view(np.uint8)
    return blocks.reshape(-1)


def pack(packing: Library, dtype: str, raw: Bytes, n_out: int, n_in: int) -> Bytes:
    """As the matrix lies on the device."""
    nbytes = int(packing.packed_nbytes(packing.formats[dtype], n_out, n_in))
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    packed = memory[-memory.ctypes.data % ALIGNMENT :][:nbytes]
    pool = packing.pool_open(1, 0)
    packing.pack(pool, packing.formats[dtype], raw.ctypes.data, packed.ctypes.data, n_out, n_in)
    packing.pool_close(pool)
    return packed


@attrs.frozen(kw_only=True)
class Weights:
    """value = d * q + m; `q` [output, tile, 32], `d` and `m` [output, tile, part]."""

    q: Integers
    d: Floats
    m: Floats | None

    def values(self) -> Floats:
        """[output, column]."""
        n_out, n_tiles, n_parts = self.d.shape
        q = self.q.reshape(n_out, n_tiles, n_parts, -1).astype(np.float32)
        values: Floats = q * self.d[..., None] + (0 if self.m is None else self.m[..., None])
        return values.reshape(n_out, -1)


def unpack(packed: Bytes, dtype: str, n_out: int, n_in: int) -> Weights:
    """The offset is taken off the integers."""
    of, tiles_a_block = LAYOUTS[dtype], DTYPES[dtype].block // TILE
    header_nbytes = {"d": 0, "dm": 0, "k16": 16}.get(of.scales, 32)
    scales_nbytes = 32 if of.scales == "dm" else 16
    tile_nbytes = scales_nbytes + TILE * (of.low + of.high)
    blocks = packed.reshape(-1, n_in // DTYPES[dtype].block, header_nbytes + tiles_a_block * tile_nbytes)
    header = blocks[:, :, None, :header_nbytes]
    tiles = blocks[:, :, header_nbytes:].reshape(*blocks.shape[:2], tiles_a_block, tile_nbytes)
    scales, low, high = np.split(tiles, [scales_nbytes, scales_nbytes + TILE * of.low], axis=-1)
    q = _vectors(low, of.low)
    if of.high:
        q = q | _vectors(high, of.high) << of.low
    integers = (q.view(np.int8) if of.low == 8 else q).astype(np.int32) - of.offset
    # [group, block, tile, vector, output, 4 columns] -> [output, tile, column]
    by_output = integers.reshape(*integers.shape[:4], GROUP, 4).transpose(0, 4, 1, 2, 3, 5)
    d, m = _scales(of.scales, header, scales)
    return Weights(
        q=by_output.reshape(-1, n_in // TILE, TILE)[:n_out],
        d=_by_output(d, n_out, n_in),
        m=None if m is None else _by_output(m, n_out, n_in),
    )


def _vectors(plane: Bytes, bits: int) -> Bytes:
    """[..., 8 vectors, 32] of a plane's bytes, as far as `bits` bits reach."""
    stored = plane.reshape(*plane.shape[:-1], bits, 32)
    if bits == 8:
        return stored
    runs = [stored >> bits * run & (1 << bits) - 1 for run in range(8 // bits)]
    vectors: Bytes = np.concatenate(runs, axis=-2)
    return vectors


def _scales(kind: str, header: Bytes, scales: Bytes) -> tuple[Floats, Floats | None]:
    """d and m, [group, block, tile, part, output]."""
    if kind in ("d", "dm"):
        halves = np.ascontiguousarray(scales[..., None, :]).view(np.float16).astype(np.float32)
        return halves[..., :GROUP], halves[..., GROUP:] if kind == "dm" else None
    all_halves = np.ascontiguousarray(header[..., None, :]).view(np.float16).astype(np.float32)
    d, m = all_halves[..., :GROUP], all_halves[..., GROUP:]
    parts = scales.reshape(*scales.shape[:-1], 2, GROUP)
    if kind == "k":
        return d * parts[..., :1, :], m * parts[..., 1:, :]
    if kind == "k16":
        return d * parts.view(np.int8), None
    return d * (parts & 15), m * (parts >> 4)


def _by_output(scales: Floats, n_out: int, n_in: int) -> Floats:
    result: Floats = scales.astype(np.float32).transpose(0, 4, 1, 2, 3).reshape(-1, n_in // TILE, scales.shape[3])
    return result[:n_out]


@attrs.frozen(kw_only=True)
class Activations:
    """x = d * q; `q` [row, tile, 32], `d` [row, tile]."""

    q: Integers
    d: Floats

    @classmethod
    def of(cls, x: Floats) -> "Activations":
        tiles = x.reshape(len(x), -1, TILE)
        d = np.abs(tiles).max(-1) * np.float32(1 / LARGEST_Q)
        with np.errstate(divide="ignore"):
            inverse = np.where(d > 0, np.float32(1) / d, np.float32(0))
        return cls(q=np.rint(tiles * inverse[..., None]).astype(np.int32), d=d)

    def records(self) -> Integers:
        """`struct activations`, [row, tile, 20 words]."""
        low = (self.q + 128) % 256 - 128
        records = np.zeros((*self.d.shape, 20), np.int32)
        records[..., :8] = ((self.q - low) >> 8).astype(np.int8).view(np.int32)
        records[..., 8:16] = low.astype(np.int8).view(np.int32)
        records[..., 16] = self.d.view(np.int32)
        records[..., 17:19] = self.sums(2)
        records[..., 19] = self.sums(1)[..., 0]
        return records

    def sums(self, n_parts: int) -> Integers:
        """Of the integers of each part, [row, tile, part]."""
        return self.q.reshape(*self.d.shape, n_parts, -1).sum(-1, dtype=np.int32)


def product(weights: Weights, x: Activations) -> Floats:
    """[row, output]; strands of tiles one after the other."""
    total = np.zeros((len(x.d), len(weights.d)), np.float32)
    for strand in range(STRANDS):
        acc = np.zeros_like(total)
        for d, isum, m, row_sums in _parts(weights, x, strand):
            acc = _fma(d, isum, acc)
            if m is not None:
                acc = _fma(m, row_sums, acc)
        total += acc
    return total


def _parts(weights: Weights, x: Activations, strand: int) -> Iterator[tuple[Floats, Floats, Floats | None, Floats]]:
    """Of a strand's parts in order: scales, integer sums as floats, minima and what they are multiplied with."""
    n_parts = weights.d.shape[2]
    q, x_q = (each.q.reshape(*each.q.shape[:2], n_parts, -1).astype(np.float64) for each in (weights, x))
    row_sums = x.d[..., None] * x.sums(n_parts).astype(np.float32)
    for tile in range(strand, weights.q.shape[1], STRANDS):
        for part in range(n_parts):
            isum = (x_q[:, tile, part] @ q[:, tile, part].T).astype(np.float32)
            m = None if weights.m is None else weights.m[None, :, tile, part]
            yield weights.d[None, :, tile, part] * x.d[:, None, tile], isum, m, row_sums[:, None, tile, part]


def _fma(a: Floats, b: Floats, c: Floats) -> Floats:
    """Rounded once, but where float64 falls between two float32 numbers: too seldom to meet."""
    sums: Floats = (a.astype(np.float64) * b + c).astype(np.float32)
    return sums
