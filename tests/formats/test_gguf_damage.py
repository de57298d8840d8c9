"""Damaged, hostile and unsupported GGUF files: the right error, in little time and memory."""

import os
import struct
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from gguf_writer import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    STRING,
    U8,
    U16,
    U32,
    U64,
    array,
    entry,
    gguf_bytes,
    scalar,
    tensor,
    text,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.dtypes import dequantize
from hipfire.errors import (
    CorruptFile,
    ModelFileError,
    ModelNotFound,
    NotAModelFile,
    TruncatedFile,
    UnsupportedFile,
)
from hipfire.formats.gguf import open_gguf
from hipfire.formats.gguf_header import MAX_ARRAY_ITEMS

HUGE = 1 << 60
SEVEN_FLOATS = gguf_bytes(tensors=[tensor("a", [7])], data=bytes(28))
ALIGNED_TO_0 = entry("general.alignment", U32, scalar(U32, 0))
ALIGNED_TO_TEXT = entry("general.alignment", STRING, text("x" * 100_000))


@contextmanager
def cheap(*, most_nbytes: int) -> Iterator[None]:
    """Fails if the block takes a second of processor time, or more memory than given at any moment."""
    tracemalloc.start()
    started = time.process_time()
    try:
        yield
        elapsed, (_, peak) = time.process_time() - started, tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak <= most_nbytes
    assert elapsed < 1


def with_dims(*dims: int, ggml_type: int = 0) -> bytes:
    return gguf_bytes(tensors=[tensor("a", dims, ggml_type=ggml_type)], data=bytes(64))


CASES = {
    "empty": (b"", TruncatedFile, "is empty"),
    "half a magic": (b"GG", TruncatedFile, "ends after 2 bytes"),
    "another format": (b"PK\3\4 and so on", NotAModelFile, "is no GGUF file"),
    "no version": (b"GGUF", TruncatedFile, "the version"),
    "version 1": (gguf_bytes(version=1), UnsupportedFile, "GGUF version 1"),
    "version 4": (gguf_bytes(version=4), UnsupportedFile, "GGUF version 4"),
    "big-endian": (gguf_bytes(version=3 << 24), UnsupportedFile, "big-endian"),
    "no counts": (b"GGUF\3\0\0\0\1\0\0", TruncatedFile, "the number of tensors"),
    "huge number of tensors": (gguf_bytes(n_tensors=HUGE), CorruptFile, "the number of tensors"),
    "huge number of keys": (gguf_bytes(n_entries=HUGE), CorruptFile, "the number of metadata keys"),
    "more tensors than bytes": (gguf_bytes(n_tensors=9999), TruncatedFile, "the number of tensors"),
    "more keys than bytes": (gguf_bytes(n_entries=9999), TruncatedFile, "the number of metadata keys"),
    "a tensor is missing": (gguf_bytes(entries=[], n_tensors=1) + bytes(33), CorruptFile, "the name of tensor 0 is 0"),
    "key of 2**64 - 1 bytes": (
        gguf_bytes(entries=[struct.pack("<Q", 2**64 - 1) + bytes(30)]),
        CorruptFile,
        "metadata key 0",
    ),
    "empty key": (gguf_bytes(entries=[entry("", U8, b"\0\0")]), CorruptFile, "metadata key 0 is 0 bytes"),
    "key not UTF-8": (gguf_bytes(entries=[entry(b"\xff", U8, b"\0")]), CorruptFile, "metadata key 0 is not UTF-8"),
    "duplicate key": (gguf_bytes(entries=[ARCHITECTURE, ARCHITECTURE]), CorruptFile, "comes twice"),
    "unknown value type": (gguf_bytes(entries=[entry("k", 13, bytes(8))]), CorruptFile, "value type 13"),
    "bool of 2": (gguf_bytes(entries=[entry("k", BOOL, b"\2")]), CorruptFile, "'k' is a bool"),
    "bools of 2": (gguf_bytes(entries=[entry("k", ARRAY, array(BOOL, b"\1\2", n=2))]), CorruptFile, "'k' has bools"),
    "huge string": (
        gguf_bytes(entries=[entry("k", STRING, struct.pack("<Q", HUGE))]),
        CorruptFile,
        "'k' is 1152921504606846976 bytes",
    ),
    "string past the end": (
        gguf_bytes(entries=[entry("k", STRING, struct.pack("<Q", 9) + b"short")]),
        TruncatedFile,
        "within 'k'",
    ),
    "string not UTF-8": (gguf_bytes(entries=[entry("k", STRING, text(b"\xc3"))]), CorruptFile, "'k' is not UTF-8"),
    "array of 2**60 strings": (
        gguf_bytes(entries=[entry("k", ARRAY, array(STRING, bytes(64), n=HUGE))]),
        CorruptFile,
        "the length of 'k' is 1152921504606846976",
    ),
    "array of more strings than bytes": (
        gguf_bytes(entries=[entry("k", ARRAY, array(STRING, bytes(64), n=9))]),
        TruncatedFile,
        "the length of 'k'",
    ),
    "array with a string of 2**64 - 1 bytes": (
        gguf_bytes(entries=[entry("k", ARRAY, array(STRING, struct.pack("<Q", 2**64 - 1), n=1))]),
        CorruptFile,
        "'k' is 18446744073709551615 bytes",
    ),
    "array whose strings go on past the end": (
        gguf_bytes(entries=[entry("k", ARRAY, array(STRING, struct.pack("<Q", 8) + bytes(8), n=2))]),
        TruncatedFile,
        "within 'k'",
    ),
    "array with a string not UTF-8": (
        gguf_bytes(entries=[entry("k", ARRAY, array(STRING, text(b"\x80"), n=1))]),
        CorruptFile,
        "'k' is not UTF-8",
    ),
    "array of unknown type": (gguf_bytes(entries=[entry("k", ARRAY, array(99, b"", n=0))]), CorruptFile, "type 99"),
    "array of arrays": (
        gguf_bytes(entries=[entry("k", ARRAY, array(ARRAY, array(U8, b"\0", n=1), n=1))]),
        UnsupportedFile,
        "array of arrays",
    ),
    "no architecture": (gguf_bytes(entries=[]), CorruptFile, "general.architecture"),
    "architecture is a number": (
        gguf_bytes(entries=[entry("general.architecture", U8, b"\1")]),
        CorruptFile,
        "general.architecture",
    ),
    "alignment 0": (gguf_bytes(entries=[ARCHITECTURE, ALIGNED_TO_0]), CorruptFile, "general.alignment is 0"),
    "alignment is text": (gguf_bytes(entries=[ARCHITECTURE, ALIGNED_TO_TEXT]), CorruptFile, "general.alignment is 'x"),
    "alignment 48": (
        gguf_bytes(entries=[ARCHITECTURE, entry("general.alignment", U32, scalar(U32, 48))]),
        CorruptFile,
        "general.alignment is 48",
    ),
    "alignment 2**63": (
        gguf_bytes(
            entries=[ARCHITECTURE, entry("general.alignment", U64, scalar(U64, 1 << 63))],
            tensors=[tensor("a", [1])],
            data=bytes(4),
        ),
        TruncatedFile,
        "tensor 'a'",
    ),
    "split count is text": (
        gguf_bytes(entries=[ARCHITECTURE, entry("split.count", STRING, text("2"))]),
        CorruptFile,
        "split.count is '2'",
    ),
    "split count over what a name can say": (
        gguf_bytes(entries=[ARCHITECTURE, entry("split.count", U32, scalar(U32, 100_000))]),
        CorruptFile,
        "split.count is 100000",
    ),
    "second part": (
        gguf_bytes(
            entries=[
                ARCHITECTURE,
                entry("split.count", U16, scalar(U16, 2)),
                entry("split.no", U16, scalar(U16, 1)),
            ]
        ),
        UnsupportedFile,
        "not the first of 2 parts",
    ),
    "no dimensions": (with_dims(), CorruptFile, "0 dimensions"),
    "five dimensions": (with_dims(1, 1, 1, 1, 1), CorruptFile, "5 dimensions"),
    "a dimension of 0": (with_dims(8, 0), CorruptFile, "dimensions"),
    "2**63 elements": (with_dims(1 << 63), CorruptFile, "dimensions"),
    "2**64 - 1 elements of one byte and a bit": (with_dims(2**64 - 32, ggml_type=8), CorruptFile, "dimensions"),
    "dimensions whose product wraps to 0": (with_dims(1 << 32, 1 << 32), CorruptFile, "dimensions"),
    "dimensions whose product wraps to 4": (with_dims((1 << 62) + 1, 4), CorruptFile, "dimensions"),
    "rows of part of a block": (with_dims(33, 32, ggml_type=2), CorruptFile, "q4_0 blocks of 32"),
    "IQ4_XS": (with_dims(256, ggml_type=23), UnsupportedFile, "IQ4_XS"),
    "tensor type 99": (with_dims(256, ggml_type=99), UnsupportedFile, "number 99"),
    "more data than the file has": (with_dims(17), TruncatedFile, "tensor 'a'"),
    "no data": (gguf_bytes(tensors=[tensor("a", [7])]), TruncatedFile, "tensor 'a'"),
    "data cut": (SEVEN_FLOATS[:-1], TruncatedFile, "tensor 'a'"),
    "two tensors of one name": (
        gguf_bytes(tensors=[tensor("a", [8]), tensor("a", [8], offset=32)], data=bytes(64)),
        CorruptFile,
        "two tensors called 'a'",
    ),
    "two tensors in one place": (
        gguf_bytes(tensors=[tensor("a", [8]), tensor("b", [8])], data=bytes(64)),
        CorruptFile,
        "'b' is at offset 0, it should be at 32",
    ),
    "misaligned": (gguf_bytes(tensors=[tensor("a", [1], offset=4)], data=bytes(8)), CorruptFile, "offset 4"),
    "offset past the end": (gguf_bytes(tensors=[tensor("a", [1], offset=HUGE)], data=bytes(8)), CorruptFile, "offset"),
    "offset that wraps": (
        gguf_bytes(tensors=[tensor("a", [1], offset=2**64 - 32)], data=bytes(8)),
        CorruptFile,
        "offset",
    ),
}


def test_the_items_of_all_arrays_together_are_bounded(tmp_path: Path) -> None:
    half = array(U8, bytes(MAX_ARRAY_ITEMS // 2 + 1), n=MAX_ARRAY_ITEMS // 2 + 1)
    path = tmp_path / "model.gguf"
    path.write_bytes(gguf_bytes(entries=[ARCHITECTURE, entry("a", ARRAY, half), entry("b", ARRAY, half)]))
    with pytest.raises(CorruptFile, match="length of 'b'"):
        open_gguf(path)


@pytest.mark.parametrize(("data", "kind", "message"), CASES.values(), ids=CASES)
def test_error_says_what_is_wrong_and_where(
    tmp_path: Path, data: bytes, kind: type[ModelFileError], message: str
) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(data)
    with cheap(most_nbytes=100_000 + 2 * len(data)), pytest.raises(ModelFileError) as caught:
        open_gguf(path)
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert len(str(caught.value)) < 1000


def test_every_truncation_is_a_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    entries = [ARCHITECTURE, entry("k", ARRAY, array(STRING, text("one") + text("two"), n=2))]
    data = gguf_bytes(
        entries=entries, tensors=[tensor("a", [7]), tensor("b", [32], ggml_type=8, offset=32)], data=bytes(66)
    )
    path.write_bytes(data)
    open_gguf(path).close()
    for size in reversed(range(len(data))):
        os.truncate(path, size)
        with pytest.raises(TruncatedFile):
            open_gguf(path)


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(NotAModelFile, match="is a directory"):
        open_gguf(tmp_path)
    with pytest.raises(NotAModelFile, match="not a regular file"):
        open_gguf(tmp_path / "pipe")
    with pytest.raises(ModelNotFound, match="does not exist"):
        open_gguf(tmp_path / "absent.gguf")


@pytest.mark.parametrize(
    "head",
    [
        gguf_bytes(n_entries=1, entries=[entry("k", STRING, struct.pack("<Q", 63 << 20))]),
        gguf_bytes(n_entries=1, entries=[entry("k", ARRAY, array(STRING, b"", n=1 << 24))]),
        gguf_bytes(n_entries=1 << 16, entries=[]),
        gguf_bytes(n_tensors=1 << 16, n_entries=0, entries=[]),
    ],
    ids=["string", "array", "keys", "tensors"],
)
def test_a_huge_file_of_zeros_costs_little(tmp_path: Path, head: bytes) -> None:
    """Where the bytes that a header claims are there, limits of its own bound what it may cost."""
    path = tmp_path / "a.gguf"
    path.write_bytes(head)
    os.truncate(path, 1 << 40)
    with cheap(most_nbytes=150 << 20), pytest.raises(CorruptFile):
        open_gguf(path)


VALID = gguf_bytes(
    entries=[
        ARCHITECTURE,
        entry("general.alignment", U32, scalar(U32, 8)),
        entry("flag", BOOL, scalar(BOOL, 1)),
        entry("numbers", ARRAY, array(U16, bytes(6), n=3)),
        entry("texts", ARRAY, array(STRING, text("one") + text("two"), n=2)),
    ],
    tensors=[tensor("a", [3]), tensor("b", [32, 2], ggml_type=2, offset=16), tensor("c", [2, 2, 2], offset=56)],
    data=bytes(88),
    alignment=8,
)
INTERESTING = [
    0,
    1,
    2,
    7,
    8,
    31,
    255,
    1 << 16,
    1 << 31,
    (1 << 32) - 1,
    1 << 32,
    HUGE,
    (1 << 63) - 1,
    1 << 63,
    2**64 - 1,
]


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """The valid file with some bytes and numbers overwritten, a piece cut out or doubled, the end cut off."""
    data = bytearray(VALID)
    places = st.integers(0, len(VALID) - 1)
    for place, value in draw(st.lists(st.tuples(places, st.integers(0, 255)), max_size=4)):
        data[place] = value
    for place, value in draw(st.lists(st.tuples(places, st.sampled_from(INTERESTING)), max_size=2)):
        width = draw(st.sampled_from([4, 8]))
        data[place : place + width] = (value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
    if draw(st.booleans()):
        start, length = draw(places), draw(st.integers(0, 40))
        data[start : start + length] = data[start : start + length] * draw(st.sampled_from([0, 2]))
    return bytes(data[: draw(st.one_of(st.just(len(data)), st.integers(0, len(data))))])


@given(mutations())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_mutation_is_opened_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "mutated.gguf"
    path.write_bytes(data)
    with cheap(most_nbytes=200_000):
        try:
            checkpoint = open_gguf(path)
        except (NotAModelFile, TruncatedFile, CorruptFile, UnsupportedFile):
            return
        with checkpoint:
            for found in checkpoint.tensors.values():
                assert dequantize(found.data, found.dtype, found.shape).shape == found.shape


def test_the_file_that_is_mutated_is_valid(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(VALID)
    with open_gguf(path) as checkpoint:
        assert [found.shape for found in checkpoint.tensors.values()] == [(3,), (2, 32), (2, 2, 2)]
