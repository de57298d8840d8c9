"""GGUF's header: bounded reading of its numbers, strings and metadata values.

The layout is that of ggml's `docs/gguf.md`, little-endian, versions 2 and 3 (which differ in nothing else).
Every length and count is compared with the bytes that are there before anything of that size is made.
Knows no tensors and no meaning of any key.
"""

import struct
from pathlib import Path

import attrs
import numpy as np

from hipfire.errors import CorruptFile, ModelFileError, TruncatedFile, UnsupportedFile
from hipfire.formats.checkpoint import MetaValue
from hipfire.formats.mapped_file import DAMAGED, INCOMPLETE, MappedFile

# No real header comes near these; they bound what a hostile one can cost in time and memory.
MAX_HEADER_NBYTES = 64 << 20
MAX_ARRAY_ITEMS = 4 << 20
MAX_KEYS = 1 << 16
MAX_NAME_NBYTES = (1 << 16) - 1

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")
# Length of the key and one byte of it, type of the value and one byte of it.
_MIN_KEY_NBYTES = 8 + 1 + 4 + 1
_STRING, _ARRAY = 8, 9


@attrs.frozen
class _Number:
    name: str
    scalar: struct.Struct
    dtype: str


_NUMBERS = {
    0: _Number("uint8", struct.Struct("<B"), "<u1"),
    1: _Number("int8", struct.Struct("<b"), "<i1"),
    2: _Number("uint16", struct.Struct("<H"), "<u2"),
    3: _Number("int16", struct.Struct("<h"), "<i2"),
    4: _Number("uint32", struct.Struct("<I"), "<u4"),
    5: _Number("int32", struct.Struct("<i"), "<i4"),
    6: _Number("float32", struct.Struct("<f"), "<f4"),
    7: _Number("bool", struct.Struct("<B"), "<u1"),
    10: _Number("uint64", struct.Struct("<Q"), "<u8"),
    11: _Number("int64", struct.Struct("<q"), "<i8"),
    12: _Number("float64", struct.Struct("<d"), "<f8"),
}
_BOOL = 7


class Cursor:
    """A position in a mapped file that moves forward over values of its header.

    Every method raises TruncatedFile where the file ends too early, CorruptFile where a length or count cannot be.
    `what` names the value in the message.
    """

    def __init__(self, file: MappedFile) -> None:
        self.position = 0
        self._data = file.data
        self._path: Path = file.path
        self._end = min(file.nbytes, MAX_HEADER_NBYTES)
        self._items_left = MAX_ARRAY_ITEMS

    def u32(self, what: str) -> int:
        return int(_U32.unpack_from(self._data, self._advance(4, what))[0])

    def u64(self, what: str) -> int:
        return int(_U64.unpack_from(self._data, self._advance(8, what))[0])

    def count(self, what: str, *, item_nbytes: int, most: int) -> int:
        """A u64 that counts items of at least `item_nbytes` each which follow in the header."""
        n = self.u64(what)
        if n > most:
            raise CorruptFile(f"{self._path}: {what} is {n}, more than the {most} allowed", hint=DAMAGED)
        if n * item_nbytes > self._end - self.position:
            raise self._too_long(n * item_nbytes, what)
        return n

    def name(self, what: str) -> str:
        """A key or a tensor's name: a short string, not empty."""
        (nbytes,) = _U64.unpack_from(self._data, self._advance(8, what))
        if not 0 < nbytes <= MAX_NAME_NBYTES:
            raise CorruptFile(f"{self._path}: {what} is {nbytes} bytes long", hint=DAMAGED)
        return self._text(nbytes, what)

    def value(self, kind: int, what: str) -> MetaValue:
        """A metadata value of GGUF value type `kind`. Raises UnsupportedFile for an array of arrays."""
        if kind == _STRING:
            return self._text(self.u64(what), what)
        if kind == _ARRAY:
            return self._array(what)
        number = self._number(kind, what)
        value: int | float = number.scalar.unpack_from(self._data, self._advance(number.scalar.size, what))[0]
        if kind != _BOOL:
            return value
        if value not in (0, 1):
            raise CorruptFile(f"{self._path}: {what} is a bool of value {value}", hint=DAMAGED)
        return bool(value)

    def _array(self, what: str) -> list[bool] | list[int] | list[float] | list[str]:
        kind = self.u32(what)
        if kind == _ARRAY:
            raise UnsupportedFile(f"{self._path}: {what} is an array of arrays", hint="convert the model anew")
        if kind == _STRING:
            return self._strings(self._array_count(what, item_nbytes=8), what)
        number = self._number(kind, what)
        n = self._array_count(what, item_nbytes=number.scalar.size)
        start = self._advance(n * number.scalar.size, what)
        values = np.frombuffer(self._data, number.dtype, count=n, offset=start)
        if kind != _BOOL:
            numbers: list[int] | list[float] = values.tolist()
            return numbers
        if n and values.max() > 1:
            raise CorruptFile(f"{self._path}: {what} has bools other than 0 and 1", hint=DAMAGED)
        flags: list[bool] = values.astype(np.bool_).tolist()
        return flags

    def _array_count(self, what: str, *, item_nbytes: int) -> int:
        n = self.count(f"the length of {what}", item_nbytes=item_nbytes, most=self._items_left)
        self._items_left -= n
        return n

    def _strings(self, n: int, what: str) -> list[str]:
        # A vocabulary has 50,000 to 260,000 of them: this loop is most of the time that opening a file takes.
        data, end, position, length_at = self._data, self._end, self.position, _U64.unpack_from
        texts = []
        try:
            for _ in range(n):
                start = position + 8
                if start > end:
                    raise self._too_long(8, what)
                position = start + length_at(data, position)[0]
                if position > end:
                    raise self._too_long(position - start, what)
                texts.append(data[start:position].decode())
        except UnicodeDecodeError as error:
            raise self._not_utf8(what) from error
        self.position = position
        return texts

    def _text(self, nbytes: int, what: str) -> str:
        start = self._advance(nbytes, what)
        try:
            return self._data[start : self.position].decode()
        except UnicodeDecodeError as error:
            raise self._not_utf8(what) from error

    def _number(self, kind: int, what: str) -> _Number:
        if kind not in _NUMBERS:
            raise CorruptFile(f"{self._path}: {what} has the unknown value type {kind}", hint=DAMAGED)
        return _NUMBERS[kind]

    def _advance(self, nbytes: int, what: str) -> int:
        """Step over `nbytes` that are there; return where they start."""
        start = self.position
        if nbytes > self._end - start:
            raise self._too_long(nbytes, what)
        self.position = start + nbytes
        return start

    def _too_long(self, nbytes: int, what: str) -> ModelFileError:
        if nbytes > MAX_HEADER_NBYTES or self._end == MAX_HEADER_NBYTES:
            return CorruptFile(f"{self._path}: {what} is {nbytes} bytes long, too long for a header", hint=DAMAGED)
        return TruncatedFile(
            f"{self._path} ends after {self._end} bytes, within {what} (byte {self.position})", hint=INCOMPLETE
        )

    def _not_utf8(self, what: str) -> CorruptFile:
        return CorruptFile(f"{self._path}: {what} is not UTF-8", hint=DAMAGED)


def read_metadata(cursor: Cursor, n_keys: int, path: Path) -> dict[str, MetaValue]:
    """The key-value section. Raises CorruptFile also for a key that comes twice."""
    metadata: dict[str, MetaValue] = {}
    for i in range(n_keys):
        key = cursor.name(f"metadata key {i}")
        if key in metadata:
            raise CorruptFile(f"{path}: the metadata key {key!r} comes twice", hint=DAMAGED)
        kind = cursor.u32(f"the type of {key!r}")
        metadata[key] = cursor.value(kind, repr(key))
    return metadata


def read_counts(cursor: Cursor, *, most_tensors: int, min_tensor_nbytes: int) -> tuple[int, int]:
    """The numbers of tensors and of metadata keys, which open the header after magic and version."""
    n_tensors = cursor.count("the number of tensors", item_nbytes=min_tensor_nbytes, most=most_tensors)
    n_keys = cursor.count("the number of metadata keys", item_nbytes=_MIN_KEY_NBYTES, most=MAX_KEYS)
    return n_tensors, n_keys
