"""Chooses the next step: which sequences go on, and by how many tokens. Pure.

Knows no device and no logits.
"""

from collections.abc import Iterable

import attrs

from hipfire.engine.sequence import Sequence


@attrs.frozen(kw_only=True)
class Budget:
    """Rows that a step may have, at least one for each slot.

    While some sequences decode, the prompts of others get fewer rows a step: that bounds the pause between two tokens.
    """

    max_tokens: int
    max_prompt_tokens_while_decoding: int


@attrs.frozen(kw_only=True, eq=False)
class Chunk:
    """The next `n_tokens` pending tokens of a sequence. With the last of them its next token can be chosen."""

    sequence: Sequence
    n_tokens: int

    @property
    def is_last(self) -> bool:
        return self.n_tokens == self.sequence.n_pending


def plan(sequences: Iterable[Sequence], budget: Budget) -> tuple[Chunk, ...]:
    """One row for every sequence that decodes, then as much of the prompts as fits, first come first served."""
    prompts = []
    chunks = []
    for sequence in sequences:
        if sequence.n_pending == 1:
            chunks.append(Chunk(sequence=sequence, n_tokens=1))
        else:
            prompts.append(sequence)
    n_left = budget.max_tokens - len(chunks)
    if chunks:
        n_left = min(n_left, budget.max_prompt_tokens_while_decoding)
    for sequence in prompts:
        if n_left == 0:
            break
        n_tokens = min(sequence.n_pending, n_left)
        chunks.append(Chunk(sequence=sequence, n_tokens=n_tokens))
        n_left -= n_tokens
    return tuple(chunks)
