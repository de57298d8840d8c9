"""One answer while it is made: counts its tokens, takes its times, and says in the end how it went.

Knows no engine; the Trio clock is its clock.
"""

import trio

from hipfire.service.events import Completed, TextDelta, Timings, Usage
from hipfire.service.pipeline import AnswerPipeline
from hipfire.wire.messages import Finished, Token


class Answer:
    """Begins with the request's submission to the engine."""

    def __init__(self, pipeline: AnswerPipeline, *, n_prompt: int, queue_ms: float, warnings: tuple[str, ...]) -> None:
        self._pipeline = pipeline
        self._n_prompt = n_prompt
        self._queue_ms = queue_ms
        self._warnings = warnings
        self._n_generated = 0
        self._submitted_at = trio.current_time()
        self._first_at = self._last_at = self._submitted_at

    @property
    def stopped(self) -> bool:
        """Whether a stop string came up: there is nothing more to say."""
        return self._pipeline.stopped

    def feed(self, token: Token) -> TextDelta | None:
        """The text that a token settles."""
        self._last_at = trio.current_time()
        if not self._n_generated:
            self._first_at = self._last_at
        self._n_generated += 1
        return self._pipeline.feed(token)

    def rest(self) -> TextDelta | None:
        """The text that was held back, at the end."""
        return self._pipeline.close()

    def completed(self, finished: Finished | None) -> Completed:
        """How it went, from the engine's own figures where it came to the end by itself."""
        prompt_ms = 1000 * (self._first_at - self._submitted_at)
        decode_ms = 1000 * (self._last_at - self._first_at)
        if finished is not None:
            prompt_ms, decode_ms = finished.prompt_ms, finished.decode_ms
        return Completed(
            finish_reason=finished.reason if finished is not None and not self.stopped else "stop",
            usage=Usage(
                n_prompt=self._n_prompt,
                n_cached=finished.n_cached if finished is not None else 0,
                n_generated=self._n_generated,
            ),
            timings=Timings(queue_ms=self._queue_ms, prompt_ms=prompt_ms, decode_ms=decode_ms),
            warnings=self._warnings,
        )
