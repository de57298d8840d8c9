"""Turns a plan into the device's Step, and the logits it gave into tokens. Knows no device and no threads."""

from collections.abc import Iterator, Sequence

import numpy as np

from hipfire.devices.base import Step
from hipfire.devices.logits import Logits, RowMath
from hipfire.engine.sampler import Choice, choose, choose_of_best, n_best_wanted
from hipfire.engine.scheduler import Chunk
from hipfire.engine.sequence import Sequence as Answer
from hipfire.errors import BadLogits, InvalidRequest
from hipfire.wire.messages import Failed, Finished, Token


def step_of(chunks: Sequence[Chunk]) -> Step:
    """The chunks' rows, one after the other; the logits of the last row are wanted where the chunk is the last.

    Whole only where the settings of a sequence need them.
    """
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    output_rows: list[int] = []
    n_best: list[int | None] = []
    for chunk in chunks:
        sequence = chunk.sequence
        start, stop = sequence.n_evaluated, sequence.n_evaluated + chunk.n_tokens
        token_ids += sequence.tokens[start:stop]
        positions += range(start, stop)
        slots += [sequence.slot] * chunk.n_tokens
        if chunk.is_last:
            output_rows.append(len(token_ids) - 1)
            n_best.append(_n_best(sequence))
    return Step(
        token_ids=np.array(token_ids, np.int32),
        positions=np.array(positions, np.int32),
        slots=np.array(slots, np.int32),
        output_rows=np.array(output_rows, np.int32),
        n_best=max((n for n in n_best if n is not None), default=0),
        whole=None in n_best,
    )


def _n_best(sequence: Answer) -> int | None:
    return n_best_wanted(sequence.sampling, masked=sequence.is_constrained)


def settle(
    chunks: Sequence[Chunk], logits: Logits, now: float, *, row_math: RowMath
) -> Iterator[Token | Finished | Failed]:
    """Advance the sequences of a step that was run, and choose the next token of those that can have one.

    `logits` is what `step_of(chunks)` gave. A sequence whose logits are broken, or whose
    constraint cannot be followed further, fails by itself.
    """
    row = -1
    for chunk in chunks:
        sequence, is_last = chunk.sequence, chunk.is_last
        sequence.n_evaluated += chunk.n_tokens
        if not is_last:
            continue
        row += 1
        try:
            yield from sequence.take(_choose(sequence, logits, row, row_math), now)
        except (BadLogits, InvalidRequest) as error:
            yield sequence.fail(error.code, str(error))


def _choose(sequence: Answer, logits: Logits, row: int, row_math: RowMath) -> Choice:
    sampling, n = sequence.sampling, sequence.n_generated
    if _n_best(sequence) is not None:
        assert logits.best is not None
        return choose_of_best(logits.best.ids[row], logits.best.values[row], sampling, n=n, row_math=row_math)
    return choose(
        logits.whole()[row],
        sampling,
        recent=sequence.recent(),
        n=n,
        allowed=sequence.allowed(),
        row_math=row_math,
    )
