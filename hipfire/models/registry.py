"""The architectures that this build has, and the way from a checkpoint to its Program."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from hipfire.formats.checkpoint import Checkpoint
from hipfire.models import gemma3, llama
from hipfire.models.model import Model
from hipfire.models.reader import Reader
from hipfire.program.ops import ShapeError

ARCHITECTURES: Mapping[str, Callable[[Reader], Model]] = MappingProxyType(
    {
        "llama": llama.build,
        "gemma3": gemma3.build,
    }
)
"""By the name that `general.architecture` has in GGUF files."""


def build_program(checkpoint: Checkpoint) -> Model:
    """The checkpoint's model as a Program; reads metadata and a few small tensors, not the weights.

    Raises UnsupportedFile for an architecture or a feature that this build lacks, CorruptFile for metadata or
    tensors that are missing or do not fit together.
    """
    reader = Reader(checkpoint=checkpoint)
    build = ARCHITECTURES.get(checkpoint.architecture)
    if build is None:
        known = ", ".join(ARCHITECTURES)
        raise reader.unsupported(f"architecture {checkpoint.architecture!r}; this build has {known}")
    try:
        return build(reader)
    except ShapeError as error:
        raise reader.corrupt(str(error)) from error
