"""Counts what the service did. Knows no HTTP."""

from collections import deque

import attrs

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

    def count(self) -> "Tally":
        """Count a request that has just come."""
        return Tally(self)


class Tally:
    """How one request ended. The first thing that is said of it counts."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self._is_counted = False

    def served(self, completed: Completed) -> None:
        """It was answered."""
        if not self._is_counted:
            self._is_counted = True
            self._stats.n_served += 1
            self._stats.recent.append(speed_of(completed))
            self._stats.n_cache_hits += completed.usage.n_cached > 0
            self._stats.n_cached_tokens += completed.usage.n_cached

    def failed(self) -> None:
        """It ended in an error."""
        if not self._is_counted:
            self._is_counted = True
            self._stats.n_failed += 1

    def close(self) -> None:
        """It is over; if nothing else was said of it, its client went."""
        if not self._is_counted:
            self._is_counted = True
            self._stats.n_cancelled += 1
