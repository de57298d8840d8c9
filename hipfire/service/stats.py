"""Counts what the service did. Knows no HTTP."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import attrs
import trio

from hipfire.errors import HipfireError
from hipfire.service.events import Completed

_N_RECENT = 16


@attrs.frozen(kw_only=True)
class Speed:
    """Of one answer, in computed tokens per second: cached ones do not count. 0 where there were none."""

    prompt_tok_s: float
    decode_tok_s: float


def speed_of(completed: Completed) -> Speed:
    """How fast an answer was made. The first token comes out of the prompt's computation, so it is no decoding."""
    usage, timings = completed.usage, completed.timings
    return Speed(
        prompt_tok_s=_rate(usage.n_prompt - usage.n_cached, timings.prompt_ms),
        decode_tok_s=_rate(usage.n_generated - 1, timings.decode_ms),
    )


def _rate(n_tokens: int, duration_ms: float) -> float:
    return 1000 * n_tokens / duration_ms if n_tokens > 0 and duration_ms > 0 else 0.0


class Stats:
    """Since the start of the service, which is at `started_at` on Trio's clock."""

    def __init__(self) -> None:
        self.started_at = 0.0
        self.n_served = 0
        self.n_failed = 0
        self.n_cancelled = 0
        self.n_cache_hits = 0
        self.n_cached_tokens = 0
        self.recent: deque[Speed] = deque(maxlen=_N_RECENT)

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Counts the request in the block by the way the block ends: through, by an error, by a cancellation."""
        try:
            yield
        except HipfireError:
            self.n_failed += 1
            raise
        except (trio.Cancelled, GeneratorExit):
            self.n_cancelled += 1
            raise
        self.n_served += 1

    def completed(self, completed: Completed) -> None:
        """Note the figures of an answer."""
        self.recent.append(speed_of(completed))
        if completed.usage.n_cached:
            self.n_cache_hits += 1
            self.n_cached_tokens += completed.usage.n_cached
