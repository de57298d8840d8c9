"""Chooses the next token from a row of logits: bias, penalties, mask, greedy or temperature, top-k, top-p, min-p.

Pure functions. The n-th draw of an answer depends on (seed, n) alone, so a batch, a cache or a rerun changes nothing.
Probabilities are integers (`RowMath.weights`): their sums are exact, so the same logits give the same token on every
machine. The vocabulary is not sorted: only a top-p that most of it shares, without top-k, comes near to that.
Knows no sequences and no device; the work on whole rows is a RowMath's.
"""

import math
from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.logits import COLDEST, HOTTEST, MAX_BEST, WEIGHT_ONE, RowMath
from hipfire.errors import BadLogits
from hipfire.wire.messages import Sampling

Scores = NDArray[np.float32]
Ids = NDArray[np.intp] | NDArray[np.int32]
Weights = NDArray[np.int64]
Allowed = NDArray[np.bool_]

_FIRST_NUCLEUS = 256
"""Candidates that top-p looks at first when top-k is off; eight times as many while they do not suffice."""

_WORD = (1 << 64) - 1


@attrs.frozen(kw_only=True)
class Choice:
    """The token, and when asked for its log probability and the likeliest tokens with theirs, best first."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def n_best_wanted(sampling: Sampling, *, masked: bool) -> int | None:
    """How many of the highest logits `choose_of_best` needs; None where only whole rows will do."""
    if masked or sampling.logit_bias or sampling.n_logprobs is not None or _penalises(sampling):
        return None
    if sampling.temperature == 0:
        return 1
    return sampling.top_k if 0 < sampling.top_k <= MAX_BEST else None


def choose_of_best(ids: Ids, logits: Scores, sampling: Sampling, *, n: int, row_math: RowMath) -> Choice:
    """What `choose` would choose, from the highest logits alone: `n_best_wanted` of them, or all that there are.

    Best first; the first is NaN where any of the row's logits is not finite: then it raises BadLogits.
    """
    if not math.isfinite(logits[0]):
        raise BadLogits("the model's output is not finite")
    if sampling.temperature == 0:
        return Choice(token=int(ids[0]))
    k = sampling.top_k
    return Choice(token=_draw_from(*_of_best(ids[:k], logits[:k], sampling, row_math), sampling, n))


def choose(
    logits: Scores,
    sampling: Sampling,
    *,
    recent: Sequence[int],
    n: int,
    allowed: Allowed | None = None,
    row_math: RowMath,
) -> Choice:
    """Choose the `n`-th token of an answer from `logits` [n_vocab], which stay as they are.

    `recent` are the tokens in the penalty window. `allowed` [n_vocab], where there is one, has the tokens that may be
    chosen, at least one. Of equal logits the lowest id counts as the best. Log probabilities are those of the model:
    the softmax of the raw logits, over all tokens. Raises BadLogits where one is not finite.
    """
    if not row_math.is_finite(logits):
        raise BadLogits("the model's output is not finite")
    scores = adjusted(logits, sampling, recent, n)
    if allowed is not None:
        scores = row_math.allow(scores, allowed)
    token = int(row_math.best(scores, 1)[0]) if sampling.temperature == 0 else _draw(scores, sampling, n, row_math)
    if sampling.n_logprobs is None:
        return Choice(token=token)
    return _with_logprobs(token, logits, sampling.n_logprobs, row_math)


def _penalises(sampling: Sampling) -> bool:
    factors = (sampling.repeat_penalty - 1, sampling.presence_penalty, sampling.frequency_penalty)
    return sampling.penalty_window > 0 and any(factors)


def adjusted(logits: Scores, sampling: Sampling, recent: Sequence[int], n: int) -> Scores:
    """The logits after bias and penalties; the same array when neither applies.

    The repeat penalty divides (below 0: multiplies) the logit of every recent token. Presence and frequency are taken
    off those that came in the answer itself, its last `n` tokens, as OpenAI has it: presence - count * frequency.
    """
    scores = logits
    if sampling.logit_bias:
        ids = np.fromiter(sampling.logit_bias.keys(), np.intp)
        biases = np.fromiter(sampling.logit_bias.values(), np.float64)
        scores = _replaced(scores, ids, scores[ids].astype(np.float64) + biases, logits)
    if recent and sampling.repeat_penalty != 1:
        # Whatever came twice gets the same value twice.
        seen = np.array(recent, np.intp)
        values = scores[seen].astype(np.float64)
        values = np.where(values > 0, values / sampling.repeat_penalty, values * sampling.repeat_penalty)
        scores = _replaced(scores, seen, values, logits)
    answer = recent[max(0, len(recent) - n) :]
    if answer and (sampling.presence_penalty != 0 or sampling.frequency_penalty != 0):
        found = Counter(answer)
        seen, counts = np.fromiter(found.keys(), np.intp), np.fromiter(found.values(), np.intp)
        values = scores[seen].astype(np.float64) - sampling.presence_penalty - counts * sampling.frequency_penalty
        scores = _replaced(scores, seen, values, logits)
    return scores


def _replaced(scores: Scores, ids: Ids, values: NDArray[np.float64], logits: Scores) -> Scores:
    """The scores with these values in their places, within float32. `logits` itself is copied first."""
    limit = float(np.finfo(np.float32).max)
    scores = logits.copy() if scores is logits else scores
    scores[ids] = np.clip(values, -limit, limit)
    return scores


def _draw(scores: Scores, sampling: Sampling, n: int, row_math: RowMath) -> int:
    if sampling.top_k == 0 and sampling.top_p == 1:
        highest = float(scores[row_math.best(scores, 1)[0]])
        share = random_bits(sampling.seed, n)
        return row_math.draw(scores, highest, _temperature(sampling), least=_least(sampling), share=share)
    return _draw_from(*candidates(scores, sampling, row_math), sampling, n)


def _draw_from(ids: Ids, weights: Weights, sampling: Sampling, n: int) -> int:
    return int(ids[index_at(weights, random_bits(sampling.seed, n))])


def candidates(scores: Scores, sampling: Sampling, row_math: RowMath) -> tuple[Ids, Weights]:
    """The tokens that may be drawn, best first, and their weights."""
    if sampling.top_k > 0:
        ids = row_math.best(scores, min(sampling.top_k, scores.size))
        return _of_best(ids, scores[ids], sampling, row_math)
    temperature, k = _temperature(sampling), min(_FIRST_NUCLEUS, scores.size)
    ids = row_math.best(scores, k)
    highest = float(scores[ids[0]])
    wanted = _nucleus(row_math.total(scores, highest, temperature), sampling)
    weights = row_math.weights(scores[ids], highest, temperature)
    while k < scores.size and int(weights.sum()) < wanted:
        k = min(8 * k, scores.size)
        ids = row_math.best(scores, k)
        weights = row_math.weights(scores[ids], highest, temperature)
    return _filtered(ids, weights, wanted, sampling)


def _of_best(ids: Ids, scores: Scores, sampling: Sampling, row_math: RowMath) -> tuple[Ids, Weights]:
    """The candidates among the tokens that top-k left, best first."""
    weights = row_math.weights(scores, float(scores[0]), _temperature(sampling))
    return _filtered(ids, weights, _nucleus(int(weights.sum()), sampling), sampling)


def _filtered(ids: Ids, weights: Weights, wanted: int, sampling: Sampling) -> tuple[Ids, Weights]:
    """What top-p leaves, the first that weigh `wanted` together, and min-p."""
    if sampling.top_p < 1:
        n_kept = int(weights.cumsum().searchsorted(wanted)) + 1
        ids, weights = ids[:n_kept], weights[:n_kept]
    if sampling.min_p > 0:
        kept = weights >= _least(sampling)
        ids, weights = ids[kept], weights[kept]
    return ids, weights


def _temperature(sampling: Sampling) -> float:
    return min(max(sampling.temperature, COLDEST), HOTTEST)


def _nucleus(total: int, sampling: Sampling) -> int:
    return math.ceil(sampling.top_p * total) if sampling.top_p < 1 else total


def _least(sampling: Sampling) -> int:
    """The weight that min-p asks for."""
    return min(math.ceil(sampling.min_p * WEIGHT_ONE), WEIGHT_ONE)


def random_bits(seed: int, n: int) -> int:
    """The n-th number in 0..2**53-1 of the stream `seed`, by itself: Philox 4x64-10, the seed as key, n + 1 as counter.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    a, b, c, d = (n + 1) & _WORD, (n + 1) >> 64, 0, 0
    key_low, key_high = seed, 0
    for _ in range(10):
        product_a, product_c = 0xD2E7470EE14C6C93 * a, 0xCA5A826395121157 * c
        a, b = (product_c >> 64) ^ b ^ key_low, product_c & _WORD
        c, d = (product_a >> 64) ^ d ^ key_high, product_a & _WORD
        key_low = (key_low + 0x9E3779B97F4A7C15) & _WORD
        key_high = (key_high + 0xBB67AE8584CAA73B) & _WORD
    return a >> 11


def index_at(weights: Weights, share: int) -> int:
    """The index where the running sum of the weights passes share / 2**53 of the whole."""
    sums = weights.cumsum()
    return int(sums.searchsorted((share * int(sums[-1])) >> 53, side="right"))


def _with_logprobs(token: int, logits: Scores, n_top: int, row_math: RowMath) -> Choice:
    best = row_math.best(logits, min(max(n_top, 1), logits.size))
    highest = float(logits[best[0]])
    normaliser = highest + math.log(row_math.total(logits, highest, 1.0) / WEIGHT_ONE)
    return Choice(
        token=token,
        logprob=float(logits[token]) - normaliser,
        top=tuple((int(i), float(logits[i]) - normaliser) for i in best[:n_top]),
    )
