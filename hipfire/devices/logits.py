"""What a step gives: logits, whole or the highest of them; and the array work on rows of them in the host's memory.

Knows no device and no settings of sampling.
"""

from typing import Protocol

import attrs
import numpy as np
from numpy.typing import NDArray

MAX_BEST = 64
"""Logits of a row that a device finds the highest of by itself, at most."""

WEIGHT_BITS = 42
WEIGHT_ONE = 1 << WEIGHT_BITS
"""The weight of the highest score."""

MAX_SCORES = 1 << 20
"""In a row: the sum of their weights stays below 2**63."""

COLDEST, HOTTEST = 1e-30, 1e30
"""Temperatures beyond choose the same, and would leave float32's range."""

LOG2_E = 1.4426950408889634


@attrs.frozen(kw_only=True, eq=False)
class Best:
    """The highest logits of each output row, best first, of equals the lowest id: ids and values [n_outputs, n_best].

    No more of them than a row has.
    Where any logit of a row is not finite, its first value is NaN, and the rest says nothing.
    """

    ids: NDArray[np.int32]
    values: NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class Logits:
    """What a step gave, valid until the next one; None is what it was not asked for."""

    best: Best | None
    rows: NDArray[np.float32] | None
    """[n_outputs, n_vocab]"""

    def whole(self) -> NDArray[np.float32]:
        """The rows [n_outputs, n_vocab] of a step that wanted them whole."""
        assert self.rows is not None, "the step did not ask for whole rows"
        return self.rows


class RowMath(Protocol):
    """What choosing a token takes of a row of scores [n], n <= MAX_SCORES: float32, none NaN, -inf for what may not be.

    The results are the same, bit for bit, on every machine and by every implementation. `weights` are integers, so
    their sums are exact in any order. Used by one thread at a time.
    """

    def is_finite(self, scores: NDArray[np.float32]) -> bool:
        """Whether none is NaN or infinite; here there may be some."""
        ...

    def best(self, scores: NDArray[np.float32], k: int) -> NDArray[np.int32]:
        """The ids of the k highest, 1 <= k <= n, best first, of equals the lowest id."""
        ...

    def allow(self, scores: NDArray[np.float32], allowed: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The scores, with -inf for those that are not allowed."""
        ...

    def weights(self, scores: NDArray[np.float32], highest: float, temperature: float) -> NDArray[np.int64]:
        """WEIGHT_ONE * exp((score - highest) / temperature), `highest` being the highest of the row.

        To seven digits, and rounded down to an integer. The temperature is in COLDEST..HOTTEST.
        """
        ...

    def total(self, scores: NDArray[np.float32], highest: float, temperature: float) -> int:
        """The sum of the weights."""
        ...

    def draw(self, scores: NDArray[np.float32], highest: float, temperature: float, *, least: int, share: int) -> int:
        """The id where the running sum of the weights that are `least` or more passes share / 2**53 of the whole."""
        ...


def best_of(rows: NDArray[np.float32], n_best: int, math: RowMath) -> Best | None:
    """The highest of each row, found on the host; None for none of them."""
    if n_best == 0:
        return None
    n_best = min(n_best, rows.shape[1])
    ids = np.empty((len(rows), n_best), np.int32)
    values = np.empty((len(rows), n_best), np.float32)
    for row, row_ids, row_values in zip(rows, ids, values, strict=True):
        row_ids[:] = math.best(row, n_best)
        row_values[:] = row[row_ids]
        if not math.is_finite(row):
            row_values[0] = np.nan
    return Best(ids=ids, values=values)
