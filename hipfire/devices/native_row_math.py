"""`RowMath` by the compiled kernels (kernels/cpu/sampling.c), without the GIL. Knows no device and no settings of
sampling.
"""

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.logits import LOG2_E, MAX_SCORES
from hipfire.kernels.library import Library

Scores = NDArray[np.float32]


class NativeRowMath:
    """See `RowMath`. Rows are contiguous."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self._scratch = np.empty(0, np.uint8)

    def is_finite(self, scores: Scores) -> bool:
        """See `RowMath.is_finite`."""
        return bool(self._library.is_finite(scores.ctypes.data, _count(scores)))

    def best(self, scores: Scores, k: int) -> NDArray[np.int32]:
        """See `RowMath.best`."""
        n = _count(scores)
        assert 1 <= k <= n
        nbytes = self._library.best_scratch_nbytes(n)
        if self._scratch.size < nbytes:
            self._scratch = np.empty(nbytes, np.uint8)
        ids = np.empty(k, np.int32)
        self._library.best(scores.ctypes.data, n, k, ids.ctypes.data, self._scratch.ctypes.data)
        return ids

    def allow(self, scores: Scores, allowed: NDArray[np.bool_]) -> Scores:
        """See `RowMath.allow`."""
        n = _count(scores)
        assert allowed.shape == scores.shape
        assert allowed.flags.c_contiguous
        out = np.empty(n, np.float32)
        self._library.allow(scores.ctypes.data, allowed.ctypes.data, n, out.ctypes.data)
        return out

    def weights(self, scores: Scores, highest: float, temperature: float) -> NDArray[np.int64]:
        """See `RowMath.weights`."""
        n = _count(scores)
        out = np.empty(n, np.int64)
        self._library.weights(scores.ctypes.data, n, highest, LOG2_E / temperature, out.ctypes.data)
        return out

    def total(self, scores: Scores, highest: float, temperature: float) -> int:
        """See `RowMath.total`."""
        return int(self._library.total(scores.ctypes.data, _count(scores), highest, LOG2_E / temperature))

    def draw(self, scores: Scores, highest: float, temperature: float, *, least: int, share: int) -> int:
        """See `RowMath.draw`."""
        n = _count(scores)
        return int(self._library.draw(scores.ctypes.data, n, highest, LOG2_E / temperature, least, share))


def _count(scores: Scores) -> int:
    """How many there are, once it is sure that native code may read them."""
    assert scores.dtype == np.float32
    assert scores.flags.c_contiguous
    assert scores.size <= MAX_SCORES
    return int(scores.size)
