"""GGUF files byte by byte, to write what no real writer would. Valid files come from PyPI's `gguf` where possible."""

import struct
from collections.abc import Sequence

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)

_FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def scalar(kind: int, value: float) -> bytes:
    return struct.pack("<" + _FORMATS[kind], value)


def array(kind: int, payload: bytes, *, n: int) -> bytes:
    """The payload of an array that claims to have `n` items."""
    return struct.pack("<IQ", kind, n) + payload


def entry(key: str | bytes, kind: int, payload: bytes) -> bytes:
    """A metadata entry."""
    return text(key) + struct.pack("<I", kind) + payload


def tensor(name: str, dims: Sequence[int], *, ggml_type: int = 0, offset: int = 0) -> bytes:
    """A tensor's entry; `dims` innermost first, as in the file."""
    return text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, ggml_type, offset)


ARCHITECTURE = entry("general.architecture", STRING, text("llama"))


def gguf_bytes(
    *,
    entries: Sequence[bytes] = (ARCHITECTURE,),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    magic: bytes = b"GGUF",
    version: int = 3,
    n_entries: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    """A file; `n_entries` and `n_tensors` are what it claims to have."""
    counts = (
        len(tensors) if n_tensors is None else n_tensors,
        len(entries) if n_entries is None else n_entries,
    )
    header = magic + struct.pack("<IQQ", version, *counts) + b"".join(entries) + b"".join(tensors)
    padding = -len(header) % alignment if data else 0
    return header + bytes(padding) + data


def with_entries(data: bytes, entries: Sequence[bytes], *, alignment: int = 32) -> bytes:
    """A valid file with more metadata. An entry of nothing keeps the tensors aligned."""
    magic_and_counts = struct.Struct("<4sIQQ")
    magic, version, n_tensors, n_entries = magic_and_counts.unpack_from(data)
    added = b"".join(entries)
    filler = entry("test.filler", STRING, text(""))
    filler = entry("test.filler", STRING, text(" " * (-len(added + filler) % alignment)))
    counts = magic_and_counts.pack(magic, version, n_tensors, n_entries + len(entries) + 1)
    return counts + added + filler + data[magic_and_counts.size :]
