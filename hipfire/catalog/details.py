"""What a model file says about itself, read from its header alone. Knows no tags and no folders."""

from collections import Counter
from pathlib import Path

import attrs

from hipfire.formats.checkpoint import Checkpoint
from hipfire.formats.open import open_checkpoint

# llama.cpp's `llama_ftype`: how a whole file was quantised, which its tensors' types alone do not tell.
_FILE_TYPES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S",
    12: "Q3_K_M", 13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 32: "BF16",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class Details:
    """`context_length` is the number of tokens that the model was trained for, 0 where the file does not say."""

    architecture: str
    quant: str
    nbytes: int
    context_length: int


def read_details(path: Path) -> Details:
    """Read a model file's header. Raises ModelFileError and its subclasses, ModelNotFound."""
    with open_checkpoint(path) as checkpoint:
        context_length = checkpoint.metadata.get(f"{checkpoint.architecture}.context_length")
        return Details(
            architecture=checkpoint.architecture,
            quant=_quant(checkpoint),
            nbytes=checkpoint.nbytes,
            context_length=context_length if type(context_length) is int else 0,
        )


def _quant(checkpoint: Checkpoint) -> str:
    file_type = checkpoint.metadata.get("general.file_type")
    if isinstance(file_type, int) and file_type in _FILE_TYPES:
        return _FILE_TYPES[file_type]
    nbytes: Counter[str] = Counter()
    for tensor in checkpoint.tensors.values():
        nbytes[tensor.dtype.name] += tensor.data.size
    return nbytes.most_common(1)[0][0].upper() if nbytes else "unknown"
