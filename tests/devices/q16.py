"""Activations as integers of 16 bits, in NumPy: to the bit what the GPU's kernels write (kernels/hip/activations.h)."""

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
