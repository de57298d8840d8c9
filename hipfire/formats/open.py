"""`open_checkpoint`: any model file or directory, told by its content, not by its name."""

from pathlib import Path

from hipfire.errors import UnsupportedFile
from hipfire.formats.checkpoint import Checkpoint
from hipfire.formats.gguf import open_gguf
from hipfire.formats.huggingface import open_huggingface
from hipfire.formats.mapped_file import MappedFile
from hipfire.formats.safetensors import looks_like_safetensors


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a Hugging Face directory.

    Raises ModelNotFound, or one of ModelFileError's subclasses, which say what is wrong, where, and what to do.
    """
    if path.is_dir():
        return open_huggingface(path)
    file = MappedFile(path)
    try:
        if looks_like_safetensors(file):
            raise UnsupportedFile(
                f"{path} is a safetensors file, which says nothing of its model's settings",
                hint="give the directory that holds it and its config.json",
            )
    finally:
        file.close()
    return open_gguf(path)
