"""Chooses the next token from a row of logits: bias, penalties, mask, greedy or temperature, top-k, top-p, min-p.

Pure functions. The n-th draw of an answer depends on (seed, n) alone, so a batch, a cache or a rerun changes nothing.
The vocabulary is not sorted: the k best come from a threshold that the maxima of k columns guarantee. Only a top-p that
most of the vocabulary shares, without top-k, comes near to it.
Knows no sequences and no device.
"""

import math
from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.errors import BadLogits
from hipfire.wire.messages import Sampling

Scores = NDArray[np.float32]
Ids = NDArray[np.intp]
Weights = NDArray[np.float64]
Allowed = NDArray[np.bool_]

_COLUMN = 64
"""Elements a column of `top_ids`' grid has."""

_FIRST_NUCLEUS = 64
"""Candidates that top-p looks at first when top-k is off; eight times as many while they do not suffice."""

_NEVER = np.float32(-np.inf)
"""The score of a token that may not be chosen: its weight is 0 at every temperature."""

_COLDEST = 1e-30
"""Colder temperatures choose the same; as float32 they would divide by zero."""


@attrs.frozen(kw_only=True)
class Choice:
    """The token, and when asked for its log probability and the likeliest tokens with theirs, best first."""

    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


def choose(
    logits: Scores, sampling: Sampling, *, recent: Sequence[int], n: int, allowed: Allowed | None = None
) -> Choice:
    """Choose the `n`-th token of an answer from `logits` [n_vocab], which stay as they are.

    `recent` are the tokens in the penalty window. `allowed` [n_vocab], where there is one, has the tokens that may be
    chosen, at least one. Of equal logits the lowest id counts as the best. Log probabilities are those of the model:
    the softmax of the raw logits, over all tokens. Raises BadLogits where one is not finite.
    """
    # Both propagate NaN, at a fraction of the cost of a mask.
    lowest, highest = float(logits.min()), float(logits.max())
    if not (math.isfinite(lowest) and math.isfinite(highest)):
        raise BadLogits("the model's output is not finite")
    # A difference of two huge logits may leave float32's range; its exponential is 0 all the same.
    with np.errstate(over="ignore", under="ignore"):
        scores = adjusted(logits, sampling, recent, n)
        if allowed is not None:
            scores = np.where(allowed, scores, _NEVER)
        if sampling.temperature == 0:
            token = int(scores.argmax())
        else:
            ids, weights = candidates(scores, sampling)
            token = int(ids[index_at(weights, uniform(sampling.seed, n))])
        if sampling.n_logprobs is None:
            return Choice(token=token)
        return _with_logprobs(token, logits, sampling.n_logprobs)


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
        seen = np.unique(np.array(recent, np.intp))
        values = scores[seen].astype(np.float64)
        values = np.where(values > 0, values / sampling.repeat_penalty, values * sampling.repeat_penalty)
        scores = _replaced(scores, seen, values, logits)
    answer = recent[max(0, len(recent) - n) :]
    if answer and (sampling.presence_penalty != 0 or sampling.frequency_penalty != 0):
        seen, counts = np.unique(np.array(answer, np.intp), return_counts=True)
        values = scores[seen].astype(np.float64) - sampling.presence_penalty - counts * sampling.frequency_penalty
        scores = _replaced(scores, seen, values, logits)
    return scores


def _replaced(scores: Scores, ids: Ids, values: Weights, logits: Scores) -> Scores:
    """The scores with these values in their places, within float32. `logits` itself is copied first."""
    limit = float(np.finfo(np.float32).max)
    scores = logits.copy() if scores is logits else scores
    scores[ids] = np.clip(values, -limit, limit)
    return scores


def candidates(scores: Scores, sampling: Sampling) -> tuple[Ids, Weights]:
    """The tokens that may be drawn and their unnormalised probabilities, 1 for the best.

    Best first, unless neither top-k nor top-p applies: then by id.
    """
    temperature = max(sampling.temperature, _COLDEST)
    highest = scores.max()
    if 0 < sampling.top_k < scores.size:
        ids = top_ids(scores, sampling.top_k)
        weights = np.exp((scores[ids] - highest).astype(np.float64) / temperature)
        total = float(weights.sum())
    else:
        every = np.exp((scores - highest) / np.float32(temperature))
        total = float(every.sum(dtype=np.float64))
        if sampling.top_p < 1:
            ids = _enough(scores, every, sampling.top_p * total)
            weights = every[ids].astype(np.float64)
        else:
            ids = np.arange(scores.size)
            weights = every.astype(np.float64)
    if sampling.top_p < 1:
        n_kept = int(np.searchsorted(np.cumsum(weights), sampling.top_p * total)) + 1
        ids, weights = ids[:n_kept], weights[:n_kept]
    if sampling.min_p > 0:
        kept = weights >= sampling.min_p
        ids, weights = ids[kept], weights[kept]
    return ids, weights


def top_ids(scores: Scores, k: int) -> Ids:
    """The ids of the k highest scores, best first, of equals the lowest id."""
    n_columns = scores.size // _COLUMN
    if k < n_columns:
        # The k best column maxima are k scores, so the k-th best score is no lower than the k-th best of them.
        maxima = scores[: n_columns * _COLUMN].reshape(_COLUMN, n_columns).max(axis=0)
        ids = np.flatnonzero(scores >= np.partition(maxima, n_columns - k)[n_columns - k])
    elif k < scores.size:
        ids = np.flatnonzero(scores >= np.partition(scores, scores.size - k)[scores.size - k])
    else:
        ids = np.arange(scores.size)
    return ids[np.argsort(-scores[ids], kind="stable")[:k]]


def uniform(seed: int, n: int) -> float:
    """The n-th number in [0, 1) of the stream `seed`, by itself: Philox 4x64-10 with the seed as key, n as counter.

    Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
    """
    return float(np.random.Philox(key=seed, counter=n).random_raw() >> 11) * 2.0**-53


def index_at(weights: Weights, share: float) -> int:
    """The index where the running sum of the weights passes `share` of the whole, share in [0, 1)."""
    cumulative = np.cumsum(weights)
    total = cumulative[-1]
    # Rounded up to the total it would point past the last weight that is not 0.
    target = min(share * total, np.nextafter(total, 0))
    return int(np.searchsorted(cumulative, target, side="right"))


def _enough(scores: Scores, weights: Scores, wanted: float) -> Ids:
    """As many of the best ids as it takes for their weights to sum to `wanted`, or a few more."""
    k = _FIRST_NUCLEUS
    ids = top_ids(scores, k)
    while k < scores.size and float(weights[ids].sum(dtype=np.float64)) < wanted:
        k *= 8
        ids = top_ids(scores, k)
    return ids


def _with_logprobs(token: int, logits: Scores, n_top: int) -> Choice:
    highest = float(logits.max())
    normaliser = highest + math.log(float(np.exp(logits - logits.max()).sum(dtype=np.float64)))
    best = top_ids(logits, n_top) if n_top else ()
    return Choice(
        token=token,
        logprob=float(logits[token]) - normaliser,
        top=tuple((int(i), float(logits[i]) - normaliser) for i in best),
    )
