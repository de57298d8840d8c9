"""What is in fixtures/tokens and fixtures/renders, and the vocabularies to read it with."""

import json
import lzma
from pathlib import Path
from typing import Any

from hipfire.formats.gguf import open_gguf
from hipfire.text.tokenizer import Tokenizer

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"


def tokenizer_of(path: Path) -> Tokenizer:
    with open_gguf(path) as checkpoint:
        return Tokenizer.from_metadata(checkpoint.metadata)


def unpacked(name: str, folder: Path) -> Path:
    path = folder / f"{name}.gguf"
    path.write_bytes(lzma.decompress((FIXTURES / "tokens" / f"{name}.gguf.xz").read_bytes()))
    return path


def reference(folder: str, name: str) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((FIXTURES / folder / f"{name}.json").read_text(encoding="utf-8"))
    return cases
