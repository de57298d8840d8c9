"""`RowMath` in NumPy: for machines without compiled kernels, and what those are held against.

Every float operation is one of float32 or float64 alone, which IEEE 754 rounds alike everywhere: no fused multiply-add,
and no function of a mathematical library. Knows no device and no settings of sampling.
"""

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.logits import LOG2_E, WEIGHT_BITS

Scores = NDArray[np.float32]
Ids = NDArray[np.int32]

_COLUMN = 64
"""Elements a column of `best`'s grid has."""

_LOWEST_EXPONENT = -60.0
"""Where weights have been 0 for long."""

_MANTISSA_BITS = 30

_EXP2 = (1.54614478e-4, 1.33908668e-3, 9.61805694e-3, 5.55035695e-2, 2.40226507e-1, 6.93147182e-1, 1.0)
"""2**x for |x| <= 1/2, to 1e-7: coefficients of x**6 to x**0, by interpolation at Chebyshev's nodes."""


class NumpyRowMath:
    """See `RowMath`."""

    def is_finite(self, scores: Scores) -> bool:
        """See `RowMath.is_finite`."""
        return bool(np.isfinite(scores).all())

    def best(self, scores: Scores, k: int) -> Ids:
        """See `RowMath.best`. Not by sorting everything: the maxima of k columns are a bound that k scores reach."""
        n_columns = scores.size // _COLUMN
        if k == 1:
            return np.array([scores.argmax()], np.int32)
        if k < n_columns:
            maxima = scores[: n_columns * _COLUMN].reshape(_COLUMN, n_columns).max(axis=0)
            ids = np.flatnonzero(scores >= np.partition(maxima, n_columns - k)[n_columns - k])
        else:
            ids = np.arange(scores.size)
        best: Ids = ids[np.argsort(-scores[ids], kind="stable")[:k]].astype(np.int32)
        return best

    def allow(self, scores: Scores, allowed: NDArray[np.bool_]) -> Scores:
        """See `RowMath.allow`."""
        return np.where(allowed, scores, np.float32(-np.inf))

    def weights(self, scores: Scores, highest: float, temperature: float) -> NDArray[np.int64]:
        """See `RowMath.weights`."""
        # A difference of two huge scores may leave float32's range; its weight is 0 all the same.
        with np.errstate(over="ignore", under="ignore"):
            x = (scores - np.float32(highest)) * np.float32(LOG2_E / temperature)
            x = np.maximum(x, np.float32(_LOWEST_EXPONENT))
        exponents = np.rint(x)
        x -= exponents
        powers = np.full_like(x, _EXP2[0])
        for coefficient in _EXP2[1:]:
            powers *= x
            powers += np.float32(coefficient)
        mantissas = (powers * np.float32(1 << _MANTISSA_BITS)).astype(np.int64)
        weights: NDArray[np.int64] = (mantissas << (WEIGHT_BITS - _MANTISSA_BITS)) >> (-exponents).astype(np.int64)
        return weights

    def total(self, scores: Scores, highest: float, temperature: float) -> int:
        """See `RowMath.total`."""
        return int(self.weights(scores, highest, temperature).sum())

    def draw(self, scores: Scores, highest: float, temperature: float, *, least: int, share: int) -> int:
        """See `RowMath.draw`."""
        weights = self.weights(scores, highest, temperature)
        weights[weights < least] = 0
        sums = weights.cumsum()
        return int(sums.searchsorted((share * int(sums[-1])) >> 53, side="right"))
