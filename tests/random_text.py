"""Texts that follow a grammar, drawn at random byte by byte."""

import random
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hipfire.grammar.matcher import Constraint, TokenTable

_NO_CONTROL: Mapping[str, int] = MappingProxyType({})
_CLOSERS = b'"}]>/'
_END = 256


class RandomWriter:
    """Its tokens are the 256 bytes, the end, and then the control tokens of `control`, whose ids are from 257 on.

    It likes what closes things, and the `phrases`, so that texts come to an end.
    """

    def __init__(self, control: Mapping[str, int] = _NO_CONTROL, *, phrases: Sequence[str] = ()) -> None:
        self._names = {token: name for name, token in control.items()}
        assert sorted(self._names) == list(range(_END + 1, _END + 1 + len(control)))
        tokens = [*(bytes([byte]) for byte in range(256)), *[b""] * (1 + len(control))]
        self._table = TokenTable(tokens, end_ids=[_END])
        self._phrases = phrases

    def write(self, grammar: str, seed: int, *, most: int = 4000) -> str:
        """A whole text. Raises InvalidRequest for a grammar that cannot be used."""
        constraint = self._table.constrain(grammar)
        written = bytearray()
        for token in self._tokens(constraint, random.Random(seed)):
            if token == _END:
                break
            written += self._names[token].encode() if token in self._names else bytes([token])
            assert len(written) < most, f"no end: {bytes(written[:200])!r}"
        return written.decode()

    def _tokens(self, constraint: Constraint, draw: random.Random) -> Iterator[int]:
        """Tokens that were accepted; the end need not be among them."""
        phrase: list[int] = []
        while not constraint.is_complete:
            allowed = constraint.allowed()
            if not phrase and self._phrases and draw.random() < 0.1:
                phrase = list(draw.choice(self._phrases).encode())
            token = phrase.pop(0) if phrase else self._drawn(allowed, draw)
            if not allowed[token]:
                phrase, token = [], self._drawn(allowed, draw)
            constraint.accept(token)
            yield token

    def _drawn(self, allowed: np.ndarray, draw: random.Random) -> int:
        closers = [token for token in (*_CLOSERS, *self._names, _END) if allowed[token]]
        if closers and draw.random() < 0.4:
            return draw.choice(closers)
        return int(draw.choice(np.flatnonzero(allowed).tolist()))
