import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from safetensors.numpy import save_file

from hipfire.dtypes import dequantize
from hipfire.errors import CorruptFile, ModelFileError, NotAModelFile, TruncatedFile, UnsupportedFile
from hipfire.formats.mapped_file import MappedFile
from hipfire.formats.safetensors import read_safetensors

FLOATS = {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}


def encoded(header: object, data: bytes = bytes(24), *, nbytes: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if nbytes is None else nbytes) + text + data


def with_tensor(**changes: object) -> bytes:
    return encoded({"a": FLOATS | changes})


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    values: dict[str, NDArray[Any]] = {
        "full": random.standard_normal((3, 5), np.float32),
        "half": random.standard_normal(7, np.float32).astype(np.float16),
    }
    save_file(values, tmp_path / "a.safetensors", metadata={"format": "pt"})
    tensors = read_safetensors(MappedFile(tmp_path / "a.safetensors"))
    assert {name: (t.name, t.dtype.name, t.shape) for name, t in tensors.items()} == {
        "full": ("full", "f32", (3, 5)),
        "half": ("half", "f16", (7,)),
    }
    for name, tensor in tensors.items():
        assert np.array_equal(dequantize(tensor.data, tensor.dtype, tensor.shape), values[name].astype(np.float32))


def test_bfloat16(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(encoded({"a": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, b"\x80\x3f\x20\xc1"))
    tensor = read_safetensors(MappedFile(path))["a"]
    assert dequantize(tensor.data, tensor.dtype, tensor.shape).tolist() == [1.0, -10.0]


CASES = {
    "short": (b"\2\0\0\0", NotAModelFile, "no safetensors"),
    "gguf": (b"GGUF" + bytes(60), NotAModelFile, "no safetensors"),
    "header of 2**63 bytes": (encoded({"a": FLOATS}, nbytes=1 << 63), NotAModelFile, "no safetensors"),
    "header past the end": (encoded({"a": FLOATS}, nbytes=9999), TruncatedFile, "within its header"),
    "no JSON": (encoded(b"{nonsense}"), CorruptFile, "JSON"),
    "not UTF-8": (encoded(b'{"\xff": 1}'), CorruptFile, "JSON"),
    "nested deeply": (encoded(b'{"a":' * 100_000), CorruptFile, "JSON"),
    "number of too many digits": (encoded(b'{"a": ' + b"9" * 5000 + b"}"), CorruptFile, "JSON"),
    "name twice": (encoded(b'{"a": 1, "a": 2}'), CorruptFile, "twice"),
    "no entry": (encoded({"a": 1}), CorruptFile, "'a' is no JSON object"),
    "no dtype": (with_tensor(dtype=None), CorruptFile, "no dtype"),
    "8-bit floats": (with_tensor(dtype="F8_E4M3"), UnsupportedFile, "F8_E4M3"),
    "shape of text": (with_tensor(shape="2x3"), CorruptFile, "its shape is '2x3'"),
    "negative shape": (with_tensor(shape=[-2, -3]), CorruptFile, "its shape"),
    "fractional shape": (with_tensor(shape=[2.0, 3]), CorruptFile, "its shape"),
    "true as a shape": (with_tensor(shape=[True, 6]), CorruptFile, "its shape"),
    "shape of a million": (with_tensor(shape=[2**62] * 1_000_000), CorruptFile, "its shape"),
    "shape whose product wraps": (with_tensor(shape=[2**32, 2**32]), CorruptFile, "shape"),
    "one offset": (with_tensor(data_offsets=[24]), CorruptFile, "data_offsets"),
    "offsets in reverse": (with_tensor(data_offsets=[24, 0]), CorruptFile, "-24 bytes"),
    "offsets that do not fit the shape": (with_tensor(data_offsets=[0, 23]), CorruptFile, "23 bytes"),
    "data begins late": (with_tensor(data_offsets=[4, 28]), CorruptFile, "begins at 4, not at 0"),
    "two tensors in one place": (encoded({"a": FLOATS, "b": FLOATS}), CorruptFile, "begins at 0, not at 24"),
    "data cut": (with_tensor()[:-1], TruncatedFile, "23 bytes of data"),
    "data left over": (with_tensor() + b"\0", CorruptFile, "1 bytes too many"),
}


@pytest.mark.parametrize(("data", "kind", "message"), CASES.values(), ids=CASES)
def test_error_says_what_is_wrong_and_where(
    tmp_path: Path, data: bytes, kind: type[ModelFileError], message: str
) -> None:
    path = tmp_path / "a.safetensors"
    path.write_bytes(data)
    with pytest.raises(ModelFileError) as caught:
        read_safetensors(MappedFile(path))
    assert type(caught.value) is kind
    assert message in caught.value.message
    assert str(path) in caught.value.message
    assert caught.value.hint
    assert len(str(caught.value)) < 1000


@given(st.data())
@settings(max_examples=100, deadline=None, derandomize=True)
def test_any_mutation_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    mutated = bytearray(with_tensor())
    for place, value in data.draw(st.lists(st.tuples(st.integers(0, len(mutated) - 1), st.integers(0, 255)))):
        mutated[place] = value
    path = tmp_path_factory.getbasetemp() / "mutated.safetensors"
    path.write_bytes(mutated[: data.draw(st.integers(1, len(mutated)))])
    try:
        tensors = read_safetensors(MappedFile(path))
    except ModelFileError:
        return
    for tensor in tensors.values():
        assert dequantize(tensor.data, tensor.dtype, tensor.shape).shape == tensor.shape
