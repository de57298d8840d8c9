"""The variants of the linear kernels, and which of them a matrix and a number of rows get. All give the same bits.

Knows no GPU but its architecture and the number of its compute units.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from hipfire.dtypes import DType

GROUP = 8
"""Outputs of a packed row group (layout.h)."""


@attrs.frozen(kw_only=True)
class LinearKind:
    """What a workgroup takes: rows of activations, groups of outputs. `source` says what else differs."""

    n_rows: int
    n_groups: int
    source: str = "linear"
    n_threads: int = 128


QUANTISED_KINDS: Mapping[str, LinearKind] = MappingProxyType(
    {
        "x1": LinearKind(n_rows=1, n_groups=4),
        "x4": LinearKind(n_rows=4, n_groups=4),
        "few": LinearKind(n_rows=1, n_groups=1),
        "matrix": LinearKind(n_rows=64, n_groups=16, source="matrix", n_threads=256),
    }
)
"""`few` spreads a group over four times as many lanes, at more instructions a weight. `matrix` goes by matrix cores."""

FLOAT_KINDS: Mapping[str, LinearKind] = MappingProxyType(
    {"x1": LinearKind(n_rows=1, n_groups=1), "x4": LinearKind(n_rows=4, n_groups=1)}
)

FEW_GROUPS = 4
"""Of a matrix, for each compute unit: with fewer, every lane counts."""


MATRIX_COST: Mapping[str, float] = MappingProxyType(
    {"gfx11": 0.82, "gfx12": 0.35, "gfx942": 0.23, "gfx950": 0.23, "gfx90a": 0.45, "gfx908": 0.5}
)
"""Time of `matrix` for an output of a row, as a part of that of `x4`, where both fill the card; by what the name of an
architecture begins with. From the instructions that q4_0 takes, vector and matrix ones one after the other."""
MATRIX_COST_WITHOUT_CORES = 0.88
MATRIX_ROWS_A_WAVE = 32
"""A workgroup for fewer rows than it could take needs the time of as many of these as they are."""


def kinds_of(dtype: DType) -> Mapping[str, LinearKind]:
    """Those that there are for a format, by the ends of their kernels' names."""
    return QUANTISED_KINDS if dtype.is_quantised else FLOAT_KINDS


def choose_kind(dtype: DType, *, n_out: int, n_rows: int, arch: str, n_compute_units: int) -> str:
    """For a matrix of `n_out` outputs: what should be quickest on the card."""
    if n_rows == 1:
        is_small = dtype.is_quantised and n_out < FEW_GROUPS * GROUP * n_compute_units
        return "few" if is_small else "x1"
    if dtype.is_quantised and _matrix_is_quicker(n_out, n_rows, arch, n_compute_units):
        return "matrix"
    return "x4"


def _matrix_is_quicker(n_out: int, n_rows: int, arch: str, n_compute_units: int) -> bool:
    """Than `x4`, which fills any card, where it would leave some compute units without a workgroup."""
    of, other = QUANTISED_KINDS["matrix"], QUANTISED_KINDS["x4"]
    n_outputs = GROUP * of.n_groups
    blocks_of_rows = -(-n_rows // MATRIX_ROWS_A_WAVE) * MATRIX_ROWS_A_WAVE / of.n_rows
    n_workgroups = -(-n_out // n_outputs) * blocks_of_rows
    rounds = math.ceil(n_workgroups / n_compute_units)
    cost = next((cost for name, cost in MATRIX_COST.items() if arch.startswith(name)), MATRIX_COST_WITHOUT_CORES)
    return rounds * n_compute_units * n_outputs * of.n_rows * cost < -(-n_rows // other.n_rows) * other.n_rows * n_out
