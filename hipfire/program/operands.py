"""What ops read and write: buffers, weights and state, with sizes that may be known only at run time."""

import enum
import math

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.dtypes import DType


class Symbol(enum.Enum):
    """A size that changes from step to step."""

    N_TOKENS = "n_tokens"
    """Rows of the step: every token of every sequence in it."""
    N_OUTPUTS = "n_outputs"
    """Rows whose logits are wanted."""


Dim = int | Symbol


@attrs.frozen(kw_only=True, eq=False)
class Buffer:
    """An activation, row-major. `shape[0]` is a Symbol, the rest are known."""

    name: str
    shape: tuple[Dim, ...]

    @property
    def width(self) -> int:
        """Elements in one row."""
        n = 1
        for dim in self.shape[1:]:
            assert isinstance(dim, int)
            n *= dim
        return n


@attrs.frozen(kw_only=True, eq=False)
class Weight:
    """A tensor of the checkpoint, by its canonical name; shape (n_out, n_in) or (n,)."""

    name: str
    dtype: DType
    shape: tuple[int, ...]

    @property
    def n_elements(self) -> int:
        return math.prod(self.shape)


@attrs.frozen(kw_only=True, eq=False)
class Constant:
    """A small float32 table that the model computed."""

    name: str
    value: NDArray[np.float32]


@attrs.frozen(kw_only=True, eq=False)
class KvState:
    """One layer's keys or values: [slot][position][kv_head][head_dim], kept between steps.

    The device picks the element type. What a sequence has not written it never reads.
    """

    name: str
    n_kv_heads: int
    head_dim: int
