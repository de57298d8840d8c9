import shutil
from pathlib import Path

import gguf
import numpy as np
import pytest

from hipfire.dtypes import dequantize
from hipfire.errors import ModelNotFound, NotAModelFile, UnsupportedFile
from hipfire.formats.open import open_checkpoint

TINY_LLAMA = Path(__file__).parents[2] / "fixtures" / "tiny-llama"


def test_content_counts_not_the_name(tmp_path: Path) -> None:
    shutil.copy(TINY_LLAMA / "model.gguf", tmp_path / "blob.safetensors")
    shutil.copy(TINY_LLAMA / "model.safetensors", tmp_path / "model.gguf")
    with open_checkpoint(tmp_path / "blob.safetensors") as checkpoint:
        assert checkpoint.rope_interleaved
    with pytest.raises(UnsupportedFile, match="directory that holds it"):
        open_checkpoint(tmp_path / "model.gguf")


def test_a_directory_is_hugging_faces() -> None:
    with open_checkpoint(TINY_LLAMA) as checkpoint:
        assert checkpoint.architecture == "llama"
        assert not checkpoint.rope_interleaved


def test_neither(tmp_path: Path) -> None:
    (tmp_path / "notes.gguf").write_text("These are notes.")
    with pytest.raises(NotAModelFile, match="notes"):
        open_checkpoint(tmp_path / "notes.gguf")
    with pytest.raises(NotAModelFile, match=r"no config\.json"):
        open_checkpoint(tmp_path)
    with pytest.raises(ModelNotFound):
        open_checkpoint(tmp_path / "absent")


def check_some_of_each_dtype(path: Path, expected_dtypes: set[str]) -> None:
    """Every tensor's first and last row against PyPI's `gguf`: other blocks are no different."""
    found = set()
    with open_checkpoint(path) as checkpoint:
        for tensor in checkpoint.tensors.values():
            found.add(tensor.dtype.name)
            rows = tensor.data.reshape(int(np.prod(tensor.shape[:-1])), -1)[[0, -1]]
            expected = gguf.dequantize(np.ascontiguousarray(rows), gguf.GGMLQuantizationType(tensor.dtype.ggml_type))
            values = dequantize(rows.reshape(-1), tensor.dtype, (2, tensor.shape[-1]))
            assert np.array_equal(values, expected)
            assert np.isfinite(values).all()
    assert found == expected_dtypes


def test_smollm2(smollm2_path: Path) -> None:
    check_some_of_each_dtype(smollm2_path, {"q4_1", "q8_0", "f32"})


def test_gemma3(gemma3_path: Path) -> None:
    check_some_of_each_dtype(gemma3_path, {"q4_k", "q5_0", "q6_k", "q8_0", "f32"})
