"""Loads that failed lately, so that the next request for the same file hears of it at once.

A load that cannot succeed takes a second or more and may cost others the model that is loaded. A file that was changed
gets another try, and so does every file after a while: what failed may have been the memory. Knows no engine.
"""

from pathlib import Path

import attrs
import trio

from hipfire.errors import EngineUnavailable, HipfireError

_REMEMBERED_S = 10.0


@attrs.frozen
class _Failure:
    error: HipfireError
    stamp: tuple[int, int] | None
    until: float


class FailedLoads:
    """By the model's path. For one Trio loop."""

    def __init__(self) -> None:
        self._failures: dict[Path, _Failure] = {}

    def remember(self, path: Path, error: HipfireError) -> None:
        """A load failed; unless it is the engine that did."""
        now = trio.current_time()
        self._failures = {known: failure for known, failure in self._failures.items() if failure.until > now}
        if not isinstance(error, EngineUnavailable):
            self._failures[path] = _Failure(error, _stamp(path), now + _REMEMBERED_S)

    def check(self, path: Path) -> None:
        """Raises the error of a load of the same file that failed lately."""
        failure = self._failures.get(path)
        if failure is not None and failure.until > trio.current_time() and failure.stamp == _stamp(path):
            raise failure.error.with_traceback(None)


def _stamp(path: Path) -> tuple[int, int] | None:
    """What changes with the file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
