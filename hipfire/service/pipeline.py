"""From tokens to the text of an answer: detokenizer, then markup, then stop strings. Synchronous; knows no engine.

A stop string is matched on the answer only, so it comes after the markup is told from it.
"""

import json
import secrets
import string
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from hipfire.service.events import CallMade, ChosenToken, Delta, ReasoningDelta, TextDelta, TokenLogprob, ToolCalls
from hipfire.text.detokenizer import Detokenizer, TokenBytes
from hipfire.text.markup import Markup, MarkupEvent, PlainMarkup, Reasoning, Text, ToolCall
from hipfire.text.stop import StopMatcher
from hipfire.wire.messages import Token

_NOTHING: Mapping[int, bytes] = MappingProxyType({})
_ID_ALPHABET = string.ascii_letters + string.digits
# What Mistral's templates demand.
_ID_LENGTH = 9


class AnswerPipeline:
    """Feed it an answer's tokens, then close it. `stopped` becomes true when a stop string came up.

    `shown`: the control tokens that the markup needs to see. `keeps_one_call`: the others are dropped.
    """

    def __init__(
        self,
        tokenizer: TokenBytes,
        *,
        stop: Sequence[str],
        markup: Markup | None = None,
        shown: Mapping[int, bytes] = _NOTHING,
        keeps_one_call: bool = False,
    ) -> None:
        self.n_reasoning = 0
        self.called = False
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, shown)
        self._markup = markup or PlainMarkup()
        self._stop_matcher = StopMatcher(stop)
        self._keeps_one_call = keeps_one_call
        # Tokens of which it is open what they are, each with the place in the model's output where it begins.
        self._unread: deque[tuple[int, ChosenToken | None]] = deque()
        # Tokens of the answer that are not reported yet, with their place in the answer.
        self._unreported: deque[tuple[int, ChosenToken]] = deque()
        self._n_fed = 0
        self._n_answer = 0
        self._n_shown = 0

    @property
    def stopped(self) -> bool:
        return self._stop_matcher.matched

    def feed(self, token: Token) -> tuple[Delta, ...]:
        """What this token settles."""
        text = self._detokenizer.feed(token.token)
        chosen = None if token.logprob is None else self._chosen(token, token.logprob)
        self._unread.append((self._n_fed, chosen))
        self._n_fed += len(text)
        return self._take(self._markup.feed(text)) if text else ()

    def close(self, *, truncated: bool = False) -> tuple[Delta, ...]:
        """What was held back, when the answer ended without a stop string, or was cut off."""
        text = self._detokenizer.close()
        self._n_fed += len(text)
        events = [*self._markup.feed(text), *self._markup.close(truncated=truncated)]
        deltas = list(self._take(event for event in events if not isinstance(event, ToolCall)))
        if self.stopped:
            return tuple(deltas)
        # Tokens without a text of their own belong to the answer if nothing else came after it.
        rest = [chosen for place, chosen in self._unread if place == self._n_fed and chosen is not None]
        last = self._show(self._stop_matcher.close(), rest)
        calls = tuple(_call_made(event) for event in events if isinstance(event, ToolCall))
        self.called = bool(calls)
        return (
            *deltas,
            *((last,) if last is not None else ()),
            *((ToolCalls(calls[:1] if self._keeps_one_call else calls),) if calls else ()),
        )

    def _take(self, events: Iterable[MarkupEvent]) -> tuple[Delta, ...]:
        deltas: list[Delta] = []
        for event in events:
            if self.stopped:
                break
            if isinstance(event, Text):
                delta = self._answer(event)
                if delta is not None:
                    deltas.append(delta)
            elif isinstance(event, Reasoning):
                self.n_reasoning += len(self._read(event))
                deltas.append(ReasoningDelta(event.text))
        return tuple(deltas)

    def _answer(self, event: Text) -> TextDelta | None:
        for place, chosen in self._read(event):
            if chosen is not None:
                self._unreported.append((self._n_answer + place - event.start, chosen))
        self._n_answer += len(event.text)
        return self._show(self._stop_matcher.feed(event.text))

    def _read(self, event: Text | Reasoning) -> list[tuple[int, ChosenToken | None]]:
        """The tokens that begin in a text. Those before it were markup."""
        tokens = []
        while self._unread and self._unread[0][0] < event.start + len(event.text):
            place, chosen = self._unread.popleft()
            if place >= event.start:
                tokens.append((place, chosen))
        return tokens

    def _show(self, shown: str, rest: Sequence[ChosenToken] = ()) -> TextDelta | None:
        self._n_shown += len(shown)
        logprobs = []
        while self._unreported and self._unreported[0][0] < self._n_shown:
            logprobs.append(self._unreported.popleft()[1])
        logprobs += rest
        return TextDelta(shown, tuple(logprobs)) if shown or logprobs else None

    def _chosen(self, token: Token, logprob: float) -> ChosenToken:
        return ChosenToken(
            chosen=self._logprob(token.token, logprob),
            top=tuple(self._logprob(other, other_logprob) for other, other_logprob in token.top),
        )

    def _logprob(self, token: int, logprob: float) -> TokenLogprob:
        return TokenLogprob(token_bytes=self._tokenizer.token_bytes(token), logprob=logprob)


def _call_made(call: ToolCall) -> CallMade:
    arguments = json.dumps(call.arguments, ensure_ascii=False)
    try:
        arguments.encode()
    except UnicodeEncodeError:
        # Half of a surrogate pair can be told in JSON, though not be written as it is.
        arguments = json.dumps(call.arguments)
    return CallMade(
        id="".join(secrets.choice(_ID_ALPHABET) for _ in range(_ID_LENGTH)), name=call.name, arguments=arguments
    )
