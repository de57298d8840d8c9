"""Whose state each slot of the device holds, and where the next sequence goes: the prefix cache.

A slot keeps the state of the sequence that ran in it until another one takes the slot. A state is a function of the
tokens alone, bit for bit, so a sequence may begin with any state whose tokens its prompt begins with, and evaluate only
the rest. The prompt's last token must be evaluated in any case, for the logits.

Knows no device: the state itself is there. Only tokens of steps that were completed count; what else a slot holds is
never read, since its owner writes every position before it reads it.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Tokens

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.engine.sequence import Sequence

Ids = NDArray[np.int32]


@attrs.frozen(kw_only=True)
class Place:
    """The slot of a sequence, and how many of its prompt's first tokens the state there is of.

    Where `copy_from` is another slot, that is so only once these positions were copied from it.
    """

    slot: int
    n_cached: int
    copy_from: int | None = None


class Slots:
    """The numbers 0..n-1, each taken by one sequence at a time. Unless `keeps`, all are as good as empty when free."""

    def __init__(self, n: int, *, keeps: bool = True) -> None:
        self._keeps = keeps
        # Free slots, the one that was used least recently first, with the tokens that their state is of.
        self._free: dict[int, Ids] = dict.fromkeys(range(n), _ids(()))

    def take(self, prompt: Tokens[int], running: Iterable[Sequence]) -> Place:
        """A free slot, of which there must be one, for a sequence with this prompt beside those that are running.

        The longest prefix wins, wherever it is. A sequence goes on in the very slot that has it if that slot loses no
        more than it gives; else the prefix is copied to the slot that can best be spared, as it is from a slot in use.
        So conversations that begin alike do not drive each other out.
        """
        wanted = _ids(prompt[:-1])
        matches = {slot: _n_common(wanted, tokens) for slot, tokens in self._free.items()}
        place = self._place(matches)
        if self._keeps:
            for sequence in running:
                n = _n_common(wanted, _ids(sequence.evaluated()))
                if n > place.n_cached:
                    place = Place(slot=self._most_spared(), n_cached=n, copy_from=sequence.slot)
        del self._free[place.slot]
        return place

    def release(self, slot: int, tokens: Tokens[int]) -> None:
        """Free a slot whose state is that of these tokens."""
        self._free[slot] = _ids(tokens if self._keeps else ())

    def forget(self) -> None:
        """No free slot's state is to be used again."""
        self._free = dict.fromkeys(self._free, _ids(()))

    def _place(self, matches: dict[int, int]) -> Place:
        """The best place among the free slots, by the number of tokens that each has in common with the prompt."""
        best = max(matches, key=lambda slot: (matches[slot], -self._free[slot].size))
        spared = self._most_spared()
        n = matches[best]
        stays = best if 2 * n >= self._free[best].size else spared
        if matches[stays] == n:
            return Place(slot=stays, n_cached=n)
        return Place(slot=spared, n_cached=n, copy_from=best)

    def _most_spared(self) -> int:
        """An empty slot, or the one that was used least recently."""
        return next((slot for slot, tokens in self._free.items() if not tokens.size), next(iter(self._free)))


def _ids(tokens: Tokens[int]) -> Ids:
    return np.array(tokens, np.int32)


def _n_common(one: Ids, other: Ids) -> int:
    """Length of the longest common prefix."""
    n = min(one.size, other.size)
    differs = one[:n] != other[:n]
    return int(differs.argmax()) if differs.any() else n
