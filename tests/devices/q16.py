"""Activations as integers of 16 bits, in NumPy: to the bit what the GPU's kernels write (kernels/hip/activations.h)."""

import attrs
import numpy as np
from numpy.typing import NDArray

TILE = 32
PART = np.float32(1) / np.float32(32512)

ACTIVATIONS = np.dtype(
    [("hi", "i1", TILE), ("lo", "i1", TILE), ("d", "f4"), ("sums", "i4", 2), ("whole", "i4")], align=True
)
"""A tile of a row: value = d * (256 * hi + lo)."""


def quantised(x: NDArray[np.float32]) -> NDArray[np.void]:
    """Rows [n_rows, n] as ACTIVATIONS [n_rows, n / 32]."""
    tiles = x.reshape(len(x), -1, TILE)
    with np.errstate(all="ignore"):
        # NaN is the largest of what it is among.
        d = np.abs(tiles).max(axis=2) * PART
        d[d < np.finfo(np.float32).tiny] = 0
        usable = (d > 0) & np.isfinite(d)
        inverse = np.float32(1) / np.where(usable, d, np.float32(1))
        q = np.rint(np.where(usable[..., None], tiles, np.float32(0)) * inverse[..., None]).astype(np.int32)
    out = np.zeros(tiles.shape[:2], ACTIVATIONS)
    out["lo"] = q.astype(np.int8)
    out["hi"] = (q - out["lo"]) >> 8
    out["d"] = d
    out["sums"] = q.reshape(*d.shape, 2, TILE // 2).sum(axis=3)
    out["whole"] = q.sum(axis=2)
    return out


def integers(rows: NDArray[np.void]) -> NDArray[np.int32]:
    """The q of ACTIVATIONS [n_rows, n_tiles]: [n_rows, n_tiles, 32]."""
    return 256 * rows["hi"].astype(np.int32) + rows["lo"]


@attrs.frozen
class Layout:
    """A format as in kernels/layout.h."""

    block: int
    low: int
    high: int
    scales: str
    offset: int

    @property
    def header_nbytes(self) -> int:
        return {"K": 32, "K16": 16, "K16M": 32}.get(self.scales, 0)

    @property
    def scales_nbytes(self) -> int:
        return 32 if self.scales == "DM" else 16


LAYOUTS = {
    "q4_0": Layout(32, 4, 0, "D", 8),
    "q4_1": Layout(32, 4, 0, "DM", 0),
    "q5_0": Layout(32, 4, 1, "D", 16),
    "q5_1": Layout(32, 4, 1, "DM", 0),
    "q8_0": Layout(32, 8, 0, "D", 0),
    "q2_k": Layout(256, 2, 0, "K16M", 0),
    "q3_k": Layout(256, 2, 1, "K16", 4),
    "q4_k": Layout(256, 4, 0, "K", 0),
    "q5_k": Layout(256, 4, 1, "K", 0),
    "q6_k": Layout(256, 4, 2, "K16", 32),
}


@attrs.frozen(kw_only=True, eq=False)
class Matrix:
    """Unpacked weights: value = d * q + m, q [n_out, n_tiles, n_parts, columns], d and m [n_out, n_tiles, n_parts]."""

    q: NDArray[np.int32]
    d: NDArray[np.float32]
    m: NDArray[np.float32] | None


def unpacked(packed: NDArray[np.uint8], dtype: str, n_in: int) -> Matrix:
    """Of packed bytes, whole row groups of eight outputs."""
    of = LAYOUTS[dtype]
    tiles_a_block = of.block // TILE
    tile_nbytes = of.scales_nbytes + 32 * (of.low + of.high)
    n_blocks = n_in // of.block
    blocks = packed.reshape(-1, n_blocks, of.header_nbytes + tiles_a_block * tile_nbytes)
    tiles = blocks[..., of.header_nbytes :].reshape(len(blocks), n_blocks * tiles_a_block, tile_nbytes)
    header = np.repeat(blocks[..., : of.header_nbytes], tiles_a_block, axis=1)
    planes = tiles[..., of.scales_nbytes :].reshape(*tiles.shape[:2], -1, 8, 4)
    q = np.stack([_vector(planes, of, j) for j in range(8)], axis=3)
    d, m = _scales(header, tiles, of)
    n_parts = d.shape[-1]
    # [group, tile, output, vector, 4] to [output, tile, part, column].
    q = q.transpose(0, 2, 1, 3, 4).reshape(-1, tiles.shape[1], n_parts, TILE // n_parts)
    d = d.transpose(0, 2, 1, 3).reshape(-1, tiles.shape[1], n_parts)
    m = None if m is None else m.transpose(0, 2, 1, 3).reshape(d.shape)
    return Matrix(q=q - of.offset, d=d, m=m)


def _vector(planes: NDArray[np.uint8], of: Layout, j: int) -> NDArray[np.int32]:
    """Columns 4 j .. 4 j + 3 of the tiles' eight outputs."""
    if of.low == 8:
        return planes[:, :, j].view(np.int8).astype(np.int32)
    low = planes[:, :, j % of.low] >> (j // of.low * of.low) & ((1 << of.low) - 1)
    if not of.high:
        return low.astype(np.int32)
    high = planes[:, :, of.low + j % of.high] >> (j // of.high * of.high) & ((1 << of.high) - 1)
    return (low | high << of.low).astype(np.int32)


def _scales(
    header: NDArray[np.uint8], tiles: NDArray[np.uint8], of: Layout
) -> tuple[NDArray[np.float32], NDArray[np.float32] | None]:
    """D and m [group, tile, output, part]."""

    def halves(of_tiles: NDArray[np.uint8], at: int) -> NDArray[np.float32]:
        return np.ascontiguousarray(of_tiles[..., at : at + 16]).view(np.float16).astype(np.float32)[..., None]

    first, second = tiles[..., :8, None], tiles[..., 8:16, None]
    both = np.concatenate([first, second], axis=3)
    match of.scales:
        case "D":
            return halves(tiles, 0), None
        case "DM":
            return halves(tiles, 0), halves(tiles, 16)
        case "K":
            return halves(header, 0) * first.astype(np.float32), halves(header, 16) * second.astype(np.float32)
        case "K16":
            return halves(header, 0) * both.view(np.int8).astype(np.float32), None
        case _:
            return halves(header, 0) * (both & 15).astype(np.float32), halves(header, 16) * (both >> 4).astype(
                np.float32
            )


STRANDS = 16


def _fma(a: NDArray[np.float32], b: NDArray[np.float32], c: NDArray[np.float32]) -> NDArray[np.float32]:
    """Rounded once: the product is exact in a long double, and the sum all but always right after it."""
    return (a.astype(np.longdouble) * b + c).astype(np.float32)


def product(rows: NDArray[np.void], matrix: Matrix) -> NDArray[np.float32]:
    """[n_rows, n_out]: integer sums of the parts, floats in strands, the strands one after the other."""
    x = integers(rows).reshape(len(rows), 1, *matrix.q.shape[1:])
    sums = (x * matrix.q).sum(axis=4, dtype=np.int64).astype(np.float32)
    part_sums = x.sum(axis=4).astype(np.float32)
    strands = np.zeros((STRANDS, len(rows), len(matrix.q)), np.float32)
    for t in range(rows.shape[1]):
        d_x = rows["d"][:, t, None]
        for part in range(matrix.d.shape[2]):
            acc = _fma(matrix.d[:, t, part] * d_x, sums[..., t, part], strands[t % STRANDS])
            if matrix.m is not None:
                acc = _fma(matrix.m[:, t, part], d_x * part_sums[..., t, part], acc)
            strands[t % STRANDS] = acc
    out = strands[0].copy()
    for strand in strands[1:]:
        out += strand
    return out
