from pathlib import Path

import gguf
import numpy as np
import pytest
from gguf_writer import (
    ARCHITECTURE,
    ARRAY,
    BOOL,
    F32,
    F64,
    I8,
    I16,
    I32,
    I64,
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
from safetensors.numpy import load_file

from hipfire.dtypes import DTYPES, dequantize
from hipfire.errors import CorruptFile, ModelNotFound, UnsupportedFile
from hipfire.formats.gguf import open_gguf

TINY_LLAMA = Path(__file__).parents[2] / "fixtures" / "tiny-llama"


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("version", [2, 3])
def test_every_kind_of_value(tmp_path: Path, version: int) -> None:
    entries = [
        ARCHITECTURE,
        entry("u8", U8, scalar(U8, 255)),
        entry("i8", I8, scalar(I8, -128)),
        entry("u16", U16, scalar(U16, 65535)),
        entry("i16", I16, scalar(I16, -32768)),
        entry("u32", U32, scalar(U32, 2**32 - 1)),
        entry("i32", I32, scalar(I32, -(2**31))),
        entry("u64", U64, scalar(U64, 2**64 - 1)),
        entry("i64", I64, scalar(I64, -(2**63))),
        entry("f32", F32, scalar(F32, 0.5)),
        entry("f64", F64, scalar(F64, 0.1)),
        entry("yes", BOOL, scalar(BOOL, 1)),
        entry("no", BOOL, scalar(BOOL, 0)),
        entry("text", STRING, text("naïve 🦙")),
        entry("empty", STRING, text("")),
        entry("texts", ARRAY, array(STRING, text("a") + text("") + text("ç"), n=3)),
        entry("numbers", ARRAY, array(I16, scalar(I16, -1) + scalar(I16, 7), n=2)),
        entry("reals", ARRAY, array(F32, scalar(F32, 0.25), n=1)),
        entry("flags", ARRAY, array(BOOL, b"\1\0", n=2)),
        entry("nothing", ARRAY, array(STRING, b"", n=0)),
    ]
    with open_gguf(write(tmp_path / "a.gguf", gguf_bytes(entries=entries, version=version))) as checkpoint:
        assert checkpoint.architecture == "llama"
        assert dict(checkpoint.metadata) == {
            "general.architecture": "llama",
            "u8": 255,
            "i8": -128,
            "u16": 65535,
            "i16": -32768,
            "u32": 2**32 - 1,
            "i32": -(2**31),
            "u64": 2**64 - 1,
            "i64": -(2**63),
            "f32": 0.5,
            "f64": 0.1,
            "yes": True,
            "no": False,
            "text": "naïve 🦙",
            "empty": "",
            "texts": ["a", "", "ç"],
            "numbers": [-1, 7],
            "reals": [0.25],
            "flags": [True, False],
            "nothing": [],
        }
        assert checkpoint.metadata["yes"] is True
        assert checkpoint.metadata["flags"] == [True, False]


@pytest.mark.parametrize("alignment", [None, 8, 4096])
def test_what_the_library_writes_is_read(tmp_path: Path, alignment: int | None) -> None:
    random = np.random.default_rng(0)
    writer = gguf.GGUFWriter(tmp_path / "a.gguf", "qwen3")
    if alignment:
        writer.add_custom_alignment(alignment)
    expected = {}
    for dtype in DTYPES.values():
        rows = random.integers(0, 256, (3, dtype.nbytes(256)), np.uint8)
        writer.add_tensor(f"{dtype.name}.weight", rows, raw_dtype=gguf.GGMLQuantizationType(dtype.ggml_type))
        expected[f"{dtype.name}.weight"] = (dtype, rows.tobytes())
    for step in (writer.write_header_to_file, writer.write_kv_data_to_file, writer.write_tensors_to_file, writer.close):
        step()
    with open_gguf(tmp_path / "a.gguf") as checkpoint:
        assert checkpoint.nbytes == (tmp_path / "a.gguf").stat().st_size
        assert not checkpoint.rope_interleaved
        assert list(checkpoint.tensors) == list(expected)
        for name, (dtype, data) in expected.items():
            read = checkpoint.tensors[name]
            assert (read.name, read.dtype, read.shape) == (name, dtype, (3, 256))
            assert read.data.tobytes() == data
            assert not read.data.flags.writeable


def test_tiny_llama_has_the_weights_of_its_source() -> None:
    """With the rows of Q and K in the order that pairs (2i, 2i+1)."""
    source = load_file(TINY_LLAMA / "model.safetensors")
    with open_gguf(TINY_LLAMA / "model.gguf") as checkpoint:
        assert checkpoint.rope_interleaved
        values = {t.name: dequantize(t.data, t.dtype, t.shape) for t in checkpoint.tensors.values()}
    assert len(values) == len(source)
    assert np.array_equal(values["token_embd.weight"], source["model.embed_tokens.weight"])
    assert np.array_equal(values["blk.1.ffn_down.weight"], source["model.layers.1.mlp.down_proj.weight"])
    q, head_dim = source["model.layers.1.self_attn.q_proj.weight"], 16
    for head in range(4):
        rows = slice(head * head_dim, (head + 1) * head_dim)
        reordered = values["blk.1.attn_q.weight"][rows]
        assert np.array_equal(reordered[0::2], q[rows][: head_dim // 2])
        assert np.array_equal(reordered[1::2], q[rows][head_dim // 2 :])


def test_padding_after_the_last_tensor_may_be_missing(tmp_path: Path) -> None:
    data = gguf_bytes(tensors=[tensor("a", [3]), tensor("b", [1], offset=32)], data=bytes(36))
    with open_gguf(write(tmp_path / "a.gguf", data)) as checkpoint:
        assert checkpoint.tensors["b"].data.size == 4


def test_close_leaves_a_tensor_that_is_in_use(tmp_path: Path) -> None:
    checkpoint = open_gguf(write(tmp_path / "a.gguf", gguf_bytes(tensors=[tensor("a", [1])], data=b"abcd")))
    kept = checkpoint.tensors["a"]
    checkpoint.close()
    checkpoint.close()
    assert not checkpoint.tensors
    assert kept.data.tobytes() == b"abcd"


def split(path: Path, *, number: int, count: int, names: list[str], total: int | None = None) -> None:
    entries = [
        *([ARCHITECTURE] if number == 0 else []),
        entry("split.no", U16, scalar(U16, number)),
        entry("split.count", U16, scalar(U16, count)),
        *([entry("split.tensors.count", I32, scalar(I32, total))] if total is not None else []),
    ]
    tensors = [tensor(name, [8], offset=32 * i) for i, name in enumerate(names)]
    path.write_bytes(gguf_bytes(entries=entries, tensors=tensors, data=bytes([number]) * 32 * len(names)))


def part(folder: Path, number: int, count: int) -> Path:
    return folder / f"model-{number:05}-of-{count:05}.gguf"


def test_parts_are_joined(tmp_path: Path) -> None:
    split(part(tmp_path, 1, 3), number=0, count=3, names=[], total=3)
    split(part(tmp_path, 2, 3), number=1, count=3, names=["a", "b"])
    split(part(tmp_path, 3, 3), number=2, count=3, names=["c"])
    with open_gguf(part(tmp_path, 1, 3)) as checkpoint:
        assert {name: t.data[0] for name, t in checkpoint.tensors.items()} == {"a": 1, "b": 1, "c": 2}
        assert checkpoint.nbytes == sum(path.stat().st_size for path in tmp_path.iterdir())
    with pytest.raises(UnsupportedFile, match="not the first of 3 parts"):
        open_gguf(part(tmp_path, 2, 3))


def test_a_part_that_is_missing(tmp_path: Path) -> None:
    split(part(tmp_path, 1, 2), number=0, count=2, names=["a"])
    with pytest.raises(ModelNotFound, match="00002-of-00002"):
        open_gguf(part(tmp_path, 1, 2))


def test_a_first_part_with_another_name(tmp_path: Path) -> None:
    split(tmp_path / "renamed.gguf", number=0, count=2, names=["a"])
    with pytest.raises(UnsupportedFile, match="not called so"):
        open_gguf(tmp_path / "renamed.gguf")


def test_parts_that_do_not_belong_together(tmp_path: Path) -> None:
    split(part(tmp_path, 1, 2), number=0, count=2, names=["a"])
    split(part(tmp_path, 2, 2), number=2, count=3, names=["b"])
    with pytest.raises(CorruptFile, match="part 2 of 2"):
        open_gguf(part(tmp_path, 1, 2))
    split(part(tmp_path, 2, 2), number=1, count=2, names=["a"])
    with pytest.raises(CorruptFile, match="'a' too"):
        open_gguf(part(tmp_path, 1, 2))
    split(part(tmp_path, 1, 2), number=0, count=2, names=["a"], total=3)
    split(part(tmp_path, 2, 2), number=1, count=2, names=["b"])
    with pytest.raises(CorruptFile, match="2 tensors, not 3"):
        open_gguf(part(tmp_path, 1, 2))
