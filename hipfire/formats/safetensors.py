"""One safetensors file: its tensors, by the names that it has for them.

Layout: a little-endian 64-bit length, a JSON header of that length, the data. Each entry of the header has a dtype,
a shape and where its data begins and ends, counted from the header's end; together they cover the data without gap
or overlap. Knows no directory, no index and no meaning of any name.
"""

import math
import reprlib
import struct

import attrs

from hipfire.dtypes import DTYPES, DType
from hipfire.errors import CorruptFile, NotAModelFile, TruncatedFile, UnsupportedFile
from hipfire.formats.checkpoint import Tensor
from hipfire.formats.json_object import parse_object
from hipfire.formats.mapped_file import DAMAGED, INCOMPLETE, MappedFile

# A shard of a thousand tensors has a header of 150 KB.
_MAX_HEADER_NBYTES = 32 << 20
_MAX_NBYTES = (1 << 63) - 1
_MAX_DIMS = 8
_LENGTH = struct.Struct("<Q")
_NOT_A_TENSOR = "__metadata__"

_DTYPES = {"F32": DTYPES["f32"], "F16": DTYPES["f16"], "BF16": DTYPES["bf16"]}


@attrs.frozen(kw_only=True)
class _Entry:
    name: str
    dtype: DType
    shape: tuple[int, ...]
    begin: int
    end: int


def looks_like_safetensors(file: MappedFile) -> bool:
    """The format has no magic: a header's length that fits, and a header that starts as one must."""
    if file.nbytes <= _LENGTH.size:
        return False
    (header_nbytes,) = _LENGTH.unpack_from(file.data)
    return 2 <= header_nbytes <= _MAX_HEADER_NBYTES and file.data[_LENGTH.size : _LENGTH.size + 1] == b"{"


def read_safetensors(file: MappedFile) -> dict[str, Tensor]:
    """The tensors of a mapped file, which must outlive them.

    Raises NotAModelFile, TruncatedFile, CorruptFile, and UnsupportedFile for a dtype that is not F32, F16 or BF16.
    """
    path = file.path
    if not looks_like_safetensors(file):
        raise NotAModelFile(f"{path} is no safetensors file", hint="download it again")
    (header_nbytes,) = _LENGTH.unpack_from(file.data)
    data_start = _LENGTH.size + header_nbytes
    if data_start > file.nbytes:
        raise TruncatedFile(f"{path} ends after {file.nbytes} bytes, within its header", hint=INCOMPLETE)
    header = parse_object(file.data[_LENGTH.size : data_start], f"the header of {path}")
    entries = [_entry(name, value, file) for name, value in header.items() if name != _NOT_A_TENSOR]
    _check_layout(sorted(entries, key=lambda entry: (entry.begin, entry.end)), file, file.nbytes - data_start)
    return {
        entry.name: Tensor(
            name=entry.name,
            dtype=entry.dtype,
            shape=entry.shape,
            data=file.bytes_at(data_start + entry.begin, entry.end - entry.begin),
        )
        for entry in entries
    }


def _entry(name: str, value: object, file: MappedFile) -> _Entry:
    where = f"{file.path}: tensor {name!r}"
    if not isinstance(value, dict):
        raise CorruptFile(f"{where} is no JSON object", hint=DAMAGED)
    dtype = value.get("dtype")
    if not isinstance(dtype, str):
        raise CorruptFile(f"{where} has no dtype", hint=DAMAGED)
    if dtype not in _DTYPES:
        raise UnsupportedFile(f"{where} is of dtype {dtype}", hint=f"only {', '.join(_DTYPES)} are supported")
    shape = _integers(value.get("shape"), f"{where}, its shape")
    offsets = _integers(value.get("data_offsets"), f"{where}, its data_offsets")
    if len(offsets) != 2 or math.prod(shape) > _MAX_NBYTES:
        raise CorruptFile(f"{where} has shape {shape} and data_offsets {offsets}", hint=DAMAGED)
    begin, end = offsets
    if end - begin != _DTYPES[dtype].nbytes(math.prod(shape)):
        raise CorruptFile(f"{where} of shape {shape} and dtype {dtype} has {end - begin} bytes", hint=DAMAGED)
    return _Entry(name=name, dtype=_DTYPES[dtype], shape=shape, begin=begin, end=end)


def _integers(value: object, what: str) -> tuple[int, ...]:
    # Few: the product of a million dimensions takes minutes.
    if not isinstance(value, list) or len(value) > _MAX_DIMS:
        raise CorruptFile(f"{what} is {reprlib.repr(value)}", hint=DAMAGED)
    if not all(type(item) is int and 0 <= item <= _MAX_NBYTES for item in value):
        raise CorruptFile(f"{what} is {reprlib.repr(value)}", hint=DAMAGED)
    return tuple(value)


def _check_layout(entries: list[_Entry], file: MappedFile, data_nbytes: int) -> None:
    """`entries` in the order of their data."""
    expected = 0
    for entry in entries:
        if entry.begin != expected:
            raise CorruptFile(
                f"{file.path}: tensor {entry.name!r} begins at {entry.begin}, not at {expected}", hint=DAMAGED
            )
        expected = entry.end
    if expected > data_nbytes:
        raise TruncatedFile(
            f"{file.path} has {data_nbytes} bytes of data; its header promises {expected}", hint=INCOMPLETE
        )
    if expected < data_nbytes:
        raise CorruptFile(f"{file.path} has {data_nbytes - expected} bytes too many", hint=DAMAGED)
