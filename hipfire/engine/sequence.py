"""One request under way: its tokens, how many of them the device has seen, and what becomes of the next one.

Knows no device, no threads and no other sequence.
"""

from collections.abc import Sequence as Tokens

import attrs

from hipfire.engine.sampler import Allowed, Choice
from hipfire.engine.span import CappedSpan
from hipfire.grammar.matcher import Constraint
from hipfire.wire.messages import Cancelled, Failed, Finished, Generate, Token


class Sequence:
    """The prompt's tokens and then the answer's. Of them the first `n_evaluated` are in the state of `slot`: those that
    were there before, `n_cached` of the prompt's, and those of every step that was completed.

    Holds at most `context_length` tokens. Times are a clock's seconds. `has_ended` once its terminal message was made.
    """

    def __init__(
        self,
        request: Generate,
        *,
        slot: int,
        n_cached: int = 0,
        context_length: int,
        now: float,
        constraint: Constraint | None = None,
    ) -> None:
        self.id = request.id
        self.sampling = request.sampling
        self.slot = slot
        self.tokens = list(request.prompt)
        self.n_evaluated = n_cached
        self.has_ended = False
        self._n_prompt = len(request.prompt)
        self._n_cached = n_cached
        self._max_generated = min(request.max_tokens, context_length - self._n_prompt)
        self._stop_ids = frozenset(request.stop_ids)
        self._constraint = constraint
        self._span = CappedSpan(request.cap) if request.cap is not None else None
        self._started_at = now
        self._first_token_at = now

    @property
    def n_pending(self) -> int:
        """Tokens that the device must see before the next one can be chosen."""
        return len(self.tokens) - self.n_evaluated

    @property
    def n_generated(self) -> int:
        """Tokens of the answer, without the one that stops it."""
        return len(self.tokens) - self._n_prompt

    def evaluated(self) -> list[int]:
        """The tokens that are in the state of its slot."""
        return self.tokens[: self.n_evaluated]

    def recent(self) -> Tokens[int]:
        """The tokens that penalties look at."""
        window = self.sampling.penalty_window
        return self.tokens[-window:] if window else ()

    @property
    def is_constrained(self) -> bool:
        """Whether `allowed` may leave tokens out."""
        return self._constraint is not None

    def allowed(self) -> Allowed | None:
        """The tokens [n_vocab] that may come next; None: all. Raises InvalidRequest where that cannot be told."""
        return None if self._constraint is None else self._constraint.allowed()

    def take(self, choice: Choice, now: float) -> tuple[Token | Finished, ...]:
        """Add the token that was chosen; return what there is to say about it.

        Raises InvalidRequest for a token that may not come, which only a cap can bring.
        """
        if self.n_generated == 0:
            self._first_token_at = now
        if self._span is not None and (token_id := self._span.next(choice.token)) != choice.token:
            # It was not drawn, so it has no probability.
            choice = attrs.evolve(choice, token=token_id, logprob=None, top=())
        if choice.token in self._stop_ids:
            return (self._finish("stop", now),)
        if self._constraint is not None:
            self._constraint.accept(choice.token)
        self.tokens.append(choice.token)
        token = Token(id=self.id, token=choice.token, logprob=choice.logprob, top=choice.top)
        if self._constraint is not None and self._constraint.is_complete:
            return (token, self._finish("stop", now))
        if self.n_generated == self._max_generated:
            return (token, self._finish("length", now))
        return (token,)

    def fail(self, code: str, message: str) -> Failed:
        self.has_ended = True
        # What its state is worth, nobody knows.
        self.n_evaluated = 0
        return Failed(id=self.id, code=code, message=message)

    def cancel(self) -> Cancelled:
        self.has_ended = True
        return Cancelled(id=self.id, n_generated=self.n_generated)

    def _finish(self, reason: str, now: float) -> Finished:
        self.has_ended = True
        return Finished(
            id=self.id,
            reason=reason,
            n_prompt=self._n_prompt,
            n_cached=self._n_cached,
            n_generated=self.n_generated,
            prompt_ms=1000 * (self._first_token_at - self._started_at),
            decode_ms=1000 * (now - self._first_token_at),
        )
