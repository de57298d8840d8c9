"""The variants of the linear kernels, and which of them a matrix and a number of rows get. All give the same bits.

Knows no GPU but the number of its compute units.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from hipfire.dtypes import DType

GROUP = 8
"""Outputs of a packed row group (layout.h)."""


@attrs.frozen(kw_only=True)
class LinearKind:
    """What a workgroup takes: rows of activations, groups of outputs. linear.hip says what else differs."""

    n_rows: int
    n_groups: int


QUANTISED_KINDS: Mapping[str, LinearKind] = MappingProxyType(
    {
        "x1": LinearKind(n_rows=1, n_groups=4),
        "x4": LinearKind(n_rows=4, n_groups=4),
        "few": LinearKind(n_rows=1, n_groups=1),
    }
)
"""`few` spreads a group over four times as many lanes, at more instructions a weight."""

FLOAT_KINDS: Mapping[str, LinearKind] = MappingProxyType(
    {"x1": LinearKind(n_rows=1, n_groups=1), "x4": LinearKind(n_rows=4, n_groups=1)}
)

FEW_GROUPS = 4
"""Of a matrix, for each compute unit: with fewer, every lane counts."""


def kinds_of(dtype: DType) -> Mapping[str, LinearKind]:
    """Those that there are for a format, by the ends of their kernels' names."""
    return QUANTISED_KINDS if dtype.is_quantised else FLOAT_KINDS


def choose_kind(dtype: DType, *, n_out: int, n_rows: int, n_compute_units: int) -> str:
    """For a matrix of `n_out` outputs: the kind that takes all the rows at once, else the one that takes the most."""
    if dtype.is_quantised and n_rows == 1 and n_out < FEW_GROUPS * GROUP * n_compute_units:
        return "few"
    kinds = {name: kind.n_rows for name, kind in kinds_of(dtype).items() if name != "few"}
    enough = [name for name, rows in kinds.items() if rows >= n_rows]
    return min(enough, key=kinds.__getitem__) if enough else max(kinds, key=kinds.__getitem__)
