"""From tokens to the text of an answer: detokenizer, then stop strings. Synchronous; knows no engine and no HTTP.

Markup of reasoning and tool calls belongs between the two, since a stop string is matched on the answer only.
"""

from collections import deque
from collections.abc import Sequence

from hipfire.service.events import ChosenToken, TextDelta, TokenLogprob
from hipfire.text.detokenizer import Detokenizer, TokenBytes
from hipfire.text.stop import StopMatcher
from hipfire.wire.messages import Token


class AnswerPipeline:
    """Feed it an answer's tokens, then close it. `stopped` becomes true when a stop string came up."""

    def __init__(self, tokenizer: TokenBytes, *, stop: Sequence[str]) -> None:
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer)
        self._stop_matcher = StopMatcher(stop)
        # Tokens not reported yet, each with the place in the text where it begins.
        self._unreported: deque[tuple[int, ChosenToken]] = deque()
        self._n_fed = 0
        self._n_shown = 0

    @property
    def stopped(self) -> bool:
        return self._stop_matcher.matched

    def feed(self, token: Token) -> TextDelta | None:
        """The text that this token settles; None when it is still open what it will be."""
        text = self._detokenizer.feed(token.token)
        if token.logprob is not None:
            self._unreported.append((self._n_fed, self._chosen(token, token.logprob)))
        return self._show(text, self._stop_matcher.feed(text))

    def close(self) -> TextDelta | None:
        """What was held back, when the answer ended without a stop string."""
        text = self._detokenizer.close()
        shown = self._stop_matcher.feed(text) + self._stop_matcher.close()
        delta = self._show(text, shown)
        if self.stopped or not self._unreported:
            return delta
        rest = tuple(chosen for _, chosen in self._unreported)
        return TextDelta(delta.text, delta.logprobs + rest) if delta is not None else TextDelta("", rest)

    def _show(self, fed: str, shown: str) -> TextDelta | None:
        self._n_fed += len(fed)
        self._n_shown += len(shown)
        if not shown:
            return None
        logprobs = []
        while self._unreported and self._unreported[0][0] < self._n_shown:
            logprobs.append(self._unreported.popleft()[1])
        return TextDelta(shown, tuple(logprobs))

    def _chosen(self, token: Token, logprob: float) -> ChosenToken:
        return ChosenToken(
            chosen=self._logprob(token.token, logprob),
            top=tuple(self._logprob(other, other_logprob) for other, other_logprob in token.top),
        )

    def _logprob(self, token: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(token_bytes=self._tokenizer.token_bytes(token), logprob=logprob)
