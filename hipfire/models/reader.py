"""What a model's builder asks of a checkpoint: typed metadata and tensors of a known shape.

Whatever is missing or of another type or shape is an error that names the key or the tensor.
Knows no architecture.
"""

import math
import reprlib
from typing import TypeGuard

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.dtypes import dequantize
from hipfire.errors import CorruptFile, UnsupportedFile
from hipfire.formats.checkpoint import Checkpoint, MetaValue, Tensor
from hipfire.program.operands import Weight


@attrs.frozen(kw_only=True, eq=False)
class Reader:
    """A checkpoint's metadata and tensors. Metadata keys are given without the architecture's prefix."""

    _checkpoint: Checkpoint = attrs.field(alias="checkpoint")

    @property
    def architecture(self) -> str:
        return self._checkpoint.architecture

    @property
    def rope_interleaved(self) -> bool:
        return self._checkpoint.rope_interleaved

    def count(self, key: str, default: int | None = None) -> int:
        """A number of things, at least 1."""
        value = self._required(key, default)
        if not _is_count(value):
            raise self._wrong(key, value, "a positive integer")
        return value

    def corrupt(self, what: str) -> CorruptFile:
        """The error that says what is wrong with this file."""
        return CorruptFile(f"{self._checkpoint.path}: {what}")

    def unsupported(self, what: str) -> UnsupportedFile:
        """The error that says what this file asks for and this build has not."""
        return UnsupportedFile(f"{self._checkpoint.path}: {what}")

    def layer_count(self) -> int:
        """How many layers the model has: no more than the file has tensors, so that they may be gone through."""
        n_layers, n_tensors = self.count("block_count"), len(self._checkpoint.tensors)
        if n_layers > n_tensors:
            raise self.corrupt(f"metadata {self._full('block_count')} is {n_layers}, with {n_tensors} tensors")
        return n_layers

    def optional_count(self, key: str) -> int | None:
        """As `count`, but None where the file has no such key or says 0."""
        return self.count(key) if self._value(key) not in (None, 0) else None

    def counts(self, key: str, n_layers: int, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """A number of things for each layer: the file has one for all, or a list."""
        value = self._value(key)
        if value is None and default is not None:
            return default
        if not isinstance(value, list):
            return (self.count(key),) * n_layers
        numbers = tuple(number for number in value if _is_count(number))
        if not len(numbers) == len(value) == n_layers:
            raise self._wrong(key, value, f"a positive integer for each of {n_layers} layers")
        return numbers

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number, not negative."""
        value = self._required(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
            raise self._wrong(key, value, "a finite number, 0 or more")
        return float(value)

    def positive(self, key: str, default: float | None = None) -> float:
        """A finite number over 0."""
        value = self.number(key, default)
        if value == 0:
            raise self._wrong(key, value, "a number over 0")
        return value

    def text(self, key: str, default: str) -> str:
        value = self._required(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def flags(self, key: str, n_layers: int) -> tuple[bool, ...] | None:
        """A list of yes or no for each layer; None where the file has no such list (it may have a number)."""
        value = self._value(key)
        if not isinstance(value, list):
            return None
        if len(value) != n_layers or not all(isinstance(flag, bool | int) for flag in value):
            raise self._wrong(key, value, f"a yes or no for each of {n_layers} layers")
        return tuple(bool(flag) for flag in value)

    def refuse(self, feature: str, *keys: str) -> None:
        """Raise UnsupportedFile where any of the keys asks for the feature, with a value other than 0."""
        for key in keys:
            if self._value(key):
                raise self.unsupported(f"{self._full(key)} = {self._value(key)}: this build has no {feature}")

    def weight(self, name: str, *shape: int) -> Weight:
        """The tensor of this name, which must have this shape."""
        weight = self.optional(name, *shape)
        if weight is None:
            raise self.corrupt(f"tensor {name} is missing")
        return weight

    def optional(self, name: str, *shape: int) -> Weight | None:
        """As `weight`, but None where the file has no such tensor."""
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            return None
        if tensor.shape != shape:
            raise self.corrupt(f"tensor {name} has shape {_show(tensor.shape)}, not {_show(shape)}")
        return Weight(name=name, dtype=tensor.dtype, shape=shape)

    def table(self, name: str, width: int) -> Weight:
        """The matrix of this name, of any number of rows, each `width` wide."""
        tensor = self._tensor(name)
        if len(tensor.shape) != 2:
            raise self.corrupt(f"tensor {name} has shape {_show(tensor.shape)}, which is no matrix")
        return self.weight(name, tensor.shape[0], width)

    def optional_values(self, name: str, n: int) -> NDArray[np.float32] | None:
        """What is in a vector of n elements; None where the file has no such tensor."""
        weight = self.optional(name, n)
        if weight is None:
            return None
        return dequantize(self._tensor(name).data, weight.dtype, weight.shape)

    def _tensor(self, name: str) -> Tensor:
        tensor = self._checkpoint.tensors.get(name)
        if tensor is None:
            raise self.corrupt(f"tensor {name} is missing")
        return tensor

    def _full(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def _value(self, key: str) -> MetaValue | None:
        return self._checkpoint.metadata.get(self._full(key))

    def _required(self, key: str, default: MetaValue | None) -> MetaValue:
        value = self._value(key)
        if value is None:
            value = default
        if value is None:
            raise self.corrupt(f"metadata {self._full(key)} is missing")
        return value

    def _wrong(self, key: str, value: MetaValue, wanted: str) -> CorruptFile:
        return self.corrupt(f"metadata {self._full(key)} is {reprlib.repr(value)}, not {wanted}")


def _is_count(value: MetaValue) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _show(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
