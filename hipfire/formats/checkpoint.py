"""A model file, whatever its format: canonical metadata and memory-mapped tensor bytes.

The canonical names are GGUF's (`blk.0.attn_q.weight`, `llama.block_count`): other formats translate to them.
Knows no architecture: `models` decides what the tensors mean.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.dtypes import DType
from hipfire.formats.mapped_file import MappedFile

MetaValue = bool | int | float | str | list[bool] | list[int] | list[float] | list[str]


@attrs.frozen(kw_only=True, eq=False)
class Tensor:
    """One tensor of a checkpoint, not yet dequantised.

    `shape` is row-major, outermost first: a weight that maps n_in to n_out has shape (n_out, n_in).
    `data` is a one-dimensional uint8 view of the mapped file, `dtype.nbytes(n)` long; read-only.
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    data: NDArray[np.uint8]


@attrs.frozen(kw_only=True, eq=False)
class Checkpoint:
    """An opened model file. `tensors` stay valid until `close()`.

    `rope_interleaved` tells how the rows of Q and K are ordered: True where a rotation pairs elements
    (2i, 2i+1) (GGUF files of Llama and its kin), False where it pairs (i, i + n/2) (everything else).
    `nbytes` is the size of all its files.
    """

    path: Path
    architecture: str
    metadata: Mapping[str, MetaValue]
    tensors: Mapping[str, Tensor]
    nbytes: int
    rope_interleaved: bool
    files: Sequence[MappedFile] = ()
    _close: Callable[[], None] = attrs.field(alias="close")

    def drop_pages(self) -> None:
        """Give back the memory of tensor data that was read: see `MappedFile.drop_pages`."""
        for file in self.files:
            file.drop_pages()

    def close(self) -> None:
        """Unmap the file. Idempotent."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
