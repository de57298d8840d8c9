"""One answer while it is made, from the engine's messages to events: what it says, its times, how it ended.

Knows no engine; the Trio clock is its clock.
"""

import trio

from hipfire.errors import EngineUnavailable
from hipfire.service.events import ChatEvent, Completed, Delta, Timings, Usage
from hipfire.service.pipeline import AnswerPipeline
from hipfire.service.reasoning import ReasoningPlan
from hipfire.wire.messages import Cancelled, Finished, Started, Token


class Answer:
    """Begins with the request's submission to the engine. `completed` is set at its end."""

    def __init__(self, pipeline: AnswerPipeline, *, n_prompt: int, queue_ms: float, plan: ReasoningPlan) -> None:
        self.completed: Completed | None = None
        self._pipeline = pipeline
        self._n_prompt = n_prompt
        self._queue_ms = queue_ms
        self._plan = plan
        self._n_cached = 0
        self._n_generated = 0
        self._submitted_at = trio.current_time()
        self._first_at = self._last_at = self._submitted_at

    def take(self, message: Started | Token | Finished | Cancelled) -> tuple[ChatEvent, ...]:
        """The events in a message; none where it is still open what it will be. The last one is Completed.

        Raises EngineUnavailable where the engine broke off.
        """
        if isinstance(message, Started):
            self._n_cached = message.n_cached
            return ()
        if isinstance(message, Token):
            deltas = self._take_token(message)
            if not self._pipeline.stopped:
                return deltas
            finished = None
        elif isinstance(message, Finished):
            deltas, finished = self._pipeline.close(truncated=message.reason == "length"), message
        else:
            raise EngineUnavailable("the engine stopped the answer before its end")
        self.completed = self._summary(finished)
        return (*deltas, self.completed)

    def _take_token(self, token: Token) -> tuple[Delta, ...]:
        self._last_at = trio.current_time()
        if not self._n_generated:
            self._first_at = self._last_at
        self._n_generated += 1
        return self._pipeline.feed(token)

    def _summary(self, finished: Finished | None) -> Completed:
        """From the engine's own figures where it came to the end by itself, and was not stopped by a stop string."""
        prompt_ms = 1000 * (self._first_at - self._submitted_at)
        decode_ms = 1000 * (self._last_at - self._first_at)
        if finished is not None:
            prompt_ms, decode_ms = finished.prompt_ms, finished.decode_ms
        return Completed(
            finish_reason=self._finish_reason(finished),
            usage=Usage(
                n_prompt=self._n_prompt,
                n_cached=self._n_cached,
                n_generated=self._n_generated,
                n_reasoning=self._pipeline.n_reasoning,
            ),
            timings=Timings(queue_ms=self._queue_ms, prompt_ms=prompt_ms, decode_ms=decode_ms),
            warnings=self._plan.warnings,
            reasoning=self._plan.in_force,
            keeps_thinking=self._plan.keeps_thinking,
        )

    def _finish_reason(self, finished: Finished | None) -> str:
        # What was held back may turn out to be a stop string in the very end.
        if finished is None or self._pipeline.stopped:
            return "stop"
        return "tool_calls" if self._pipeline.called and finished.reason == "stop" else finished.reason
