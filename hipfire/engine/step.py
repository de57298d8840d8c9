"""Turns a plan into the device's Step, and the logits it gave into tokens. Knows no device and no threads."""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import Step
from hipfire.engine.sampler import choose
from hipfire.engine.scheduler import Chunk
from hipfire.errors import BadLogits, InvalidRequest
from hipfire.wire.messages import Failed, Finished, Token


def step_of(chunks: Sequence[Chunk]) -> Step:
    """The chunks' rows, one after the other; the logits of the last row are wanted where the chunk is the last."""
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    output_rows: list[int] = []
    for chunk in chunks:
        sequence = chunk.sequence
        start, stop = sequence.n_evaluated, sequence.n_evaluated + chunk.n_tokens
        token_ids += sequence.tokens[start:stop]
        positions += range(start, stop)
        slots += [sequence.slot] * chunk.n_tokens
        if chunk.is_last:
            output_rows.append(len(token_ids) - 1)
    return Step(
        token_ids=np.array(token_ids, np.int32),
        positions=np.array(positions, np.int32),
        slots=np.array(slots, np.int32),
        output_rows=np.array(output_rows, np.int32),
    )


def settle(chunks: Sequence[Chunk], logits: NDArray[np.float32], now: float) -> Iterator[Token | Finished | Failed]:
    """Advance the sequences of a step that was run, and choose the next token of those that can have one.

    `logits` [n_outputs, n_vocab] is what `step_of(chunks)` gave. A sequence whose logits are broken, or whose
    constraint cannot be followed further, fails by itself.
    """
    rows = iter(logits)
    for chunk in chunks:
        sequence, is_last = chunk.sequence, chunk.is_last
        sequence.n_evaluated += chunk.n_tokens
        if not is_last:
            continue
        try:
            choice = choose(
                next(rows),
                sequence.sampling,
                recent=sequence.recent(),
                n=sequence.n_generated,
                allowed=sequence.allowed(),
            )
            yield from sequence.take(choice, now)
        except (BadLogits, InvalidRequest) as error:
            yield sequence.fail(error.code, str(error))
