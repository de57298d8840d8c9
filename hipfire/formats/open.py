"""`open_checkpoint`: any model file or directory, told by its content, not by its name."""

from pathlib import Path

from hipfire.formats.checkpoint import Checkpoint
from hipfire.formats.gguf import open_gguf


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file. Raises ModelFileError's subclasses and ModelNotFound."""
    return open_gguf(path)
