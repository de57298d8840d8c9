"""Tokenizers of whole vocabularies, each built once."""

from pathlib import Path

import pytest
from reference_data import tokenizer_of, unpacked

from hipfire.text.tokenizer import Tokenizer


@pytest.fixture(scope="session")
def llama_spm_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpacked("llama-spm", tmp_path_factory.mktemp("llama-spm"))


@pytest.fixture(scope="session")
def llama_spm(llama_spm_path: Path) -> Tokenizer:
    """Llama 2's vocabulary: SentencePiece, with a space put before a text."""
    return tokenizer_of(llama_spm_path)


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    """GPT-2's vocabulary: byte-level."""
    return tokenizer_of(unpacked("gpt-2", tmp_path_factory.mktemp("gpt-2")))


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Tokenizer:
    return tokenizer_of(smollm2_path)


@pytest.fixture(scope="session")
def gemma3(gemma3_path: Path) -> Tokenizer:
    return tokenizer_of(gemma3_path)
