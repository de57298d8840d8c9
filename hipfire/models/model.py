"""A built model: its Program and the numbers that whoever runs it needs."""

import attrs

from hipfire.program.program import Program


@attrs.frozen(kw_only=True, eq=False)
class Model:
    """`program` wants the checkpoint's tensors by their names. `context_length` is what the model was trained on."""

    architecture: str
    program: Program
    n_vocab: int
    context_length: int
    n_layers: int
