"""Chooses how much state there is: how many tokens a sequence may hold, and how many ended sequences are kept.

Knows no device: it is told what a length and a slot cost.
"""

from bisect import bisect_right
from collections.abc import Callable

from hipfire.errors import OutOfMemory

MIN_CONTEXT = 512
"""A context that a want of memory would cut down to less than this is of no use: the model is refused."""

_GRANULE = 64
_HEADROOM_NBYTES = 256 << 20
_HEADROOM_SHARE = 0.1
_MIB = 1 << 20

_KEPT_SHARE = 0.25
_MOST_KEPT = 1024
_MOST_KEPT_UNASKED = 8


def fit_context(nbytes: Callable[[int], int], *, wanted: int | None, trained: int, free_nbytes: int | None) -> int:
    """Tokens that each sequence may hold: `wanted`, exactly, or else as much of the trained context as fits.

    `nbytes` tells what the model takes with a context of that length, and never falls with it. When it is ours to
    choose, a tenth of the free memory, 256 MiB at least, is left alone. `free_nbytes` None: nobody knows, so all fits.
    Raises OutOfMemory where the wanted length does not fit, or next to nothing of the trained one.
    """
    if free_nbytes is None:
        return wanted or trained
    if wanted is not None:
        _require(nbytes, wanted, free_nbytes)
        return wanted
    budget = _without_headroom(free_nbytes)
    if nbytes(trained) <= budget:
        return trained
    _require(nbytes, min(trained, MIN_CONTEXT), budget)
    lengths = range(_GRANULE, trained, _GRANULE)
    return lengths[bisect_right(lengths, budget, key=nbytes) - 1]


def fit_kept_slots(*, slot_nbytes: int, limit_nbytes: int | None, model_nbytes: int, free_nbytes: int | None) -> int:
    """Slots for sequences that have ended, besides those for the ones that run.

    They take nothing from a context: they come out of what `model_nbytes`, the model with its running sequences, leaves
    of the free memory, without the headroom, and out of `limit_nbytes`. Without a limit that is a quarter of the free
    memory, for at most 8 slots, and none where nobody knows what is free. Every slot is looked at when a prompt comes:
    there are never more than 1024.
    """
    most = _MOST_KEPT
    if limit_nbytes is None:
        if free_nbytes is None:
            return 0
        limit_nbytes, most = int(free_nbytes * _KEPT_SHARE), _MOST_KEPT_UNASKED
    if free_nbytes is not None:
        limit_nbytes = min(limit_nbytes, _without_headroom(free_nbytes) - model_nbytes)
    return min(max(limit_nbytes, 0) // slot_nbytes, most)


def _without_headroom(free_nbytes: int) -> int:
    return free_nbytes - max(_HEADROOM_NBYTES, int(free_nbytes * _HEADROOM_SHARE))


def _require(nbytes: Callable[[int], int], n_tokens: int, free_nbytes: int) -> None:
    needed = nbytes(n_tokens)
    if needed > free_nbytes:
        raise OutOfMemory(
            f"the model takes {-(-needed // _MIB)} MiB with a context of {n_tokens} tokens, and "
            f"{max(free_nbytes, 0) // _MIB} MiB can be had",
            hint="a shorter context, fewer sequences at once or a smaller model takes less",
        )
