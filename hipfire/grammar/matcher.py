"""Which tokens may come next in a text that follows a grammar, by llguidance. Knows no model and no logits.

Everything is bounded by the library's own counters, not by time, so that the same request always ends alike. A bound
that is reached is an error: a constraint never lets go.
"""

from collections.abc import Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from hipfire.errors import InvalidRequest
from hipfire.grammar.limits import first_line, parser_limits

Allowed = NDArray[np.bool_]


class TokenTable:
    """What each token of a vocabulary stands for. Making one takes a second for a quarter of a million tokens.

    `tokens` [n_vocab]: the bytes of each; an empty one is a control token, which no text holds. `end_ids` end a text.
    """

    def __init__(self, tokens: Sequence[bytes], *, end_ids: Sequence[int]) -> None:
        self.n_vocab = len(tokens)
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(_Vocabulary(tokens, end_ids[0])), n_vocab=len(tokens), eos_token=list(end_ids)
        )

    def constrain(self, grammar: str) -> "Constraint":
        """The constraint of one text. Raises InvalidRequest for a grammar that is wrong or too large."""
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=parser_limits())
        if matcher.is_error():
            raise InvalidRequest(f"what the answer must be cannot be kept to: {first_line(matcher.get_error())}")
        return Constraint(matcher, self.n_vocab)


class Constraint:
    """Where a text stands in its grammar."""

    def __init__(self, matcher: LLMatcher, n_vocab: int) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab

    @property
    def is_complete(self) -> bool:
        """Whether the text is whole and nothing can be added to it."""
        return self._matcher.is_stopped() and not self._matcher.is_error()

    def allowed(self) -> Allowed:
        """The tokens [n_vocab] that may come next, at least one. Raises InvalidRequest where that cannot be told."""
        words = self._matcher.compute_bitmask()
        self._check()
        bits = np.unpackbits(np.frombuffer(words, np.uint8), count=self._n_vocab, bitorder="little")
        allowed = bits.view(np.bool_)
        if not allowed.any():
            raise InvalidRequest("no token goes on with the answer as it must be")
        return allowed

    def accept(self, token: int) -> None:
        """Add a token. Raises InvalidRequest for one that may not come, and where it cannot be told."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise InvalidRequest(
                f"what the answer must be cannot be followed further: {first_line(self._matcher.get_error())}",
                hint="simpler patterns and fewer optional parts take less",
            )


class _Vocabulary:
    """What the library wants to know of a tokenizer."""

    bos_token_id = None

    def __init__(self, tokens: Sequence[bytes], eos_token_id: int) -> None:
        self.eos_token_id = eos_token_id
        self.special_token_ids = [token for token, text in enumerate(tokens) if not text]
        # Without a text of its own each would stand for all of them.
        self.tokens = list(tokens)
        for token in self.special_token_ids:
            self.tokens[token] = f"<{token}>".encode()

    def __call__(self, _text: bytes | str) -> list[int]:
        """Only for text that the library would force, which no grammar here asks for."""
        return []
