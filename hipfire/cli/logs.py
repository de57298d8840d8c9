"""Where log lines go: to stderr, with the time. Knows no commands."""

import logging
import sys
from collections.abc import Callable
from pathlib import Path

from hipfire.config.schema import Log
from hipfire.lifecycle.logfile import rotate
from hipfire.log_lines import JsonLines


class _Stderr:
    """Whatever sys.stderr is at the moment: while a progress bar is shown, lines go above it."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class _Watched(_Stderr):
    """The same, and something is done after each line."""

    def __init__(self, after_line: Callable[[], None]) -> None:
        self._after_line = after_line

    def flush(self) -> None:
        super().flush()
        self._after_line()


def log_to_stderr(log: Log) -> None:
    """Have log lines written to stderr, of the level and in the format that is set."""
    _log_to(_Stderr(), log, date_format="%H:%M:%S")


def log_to_file(log: Log, path: Path) -> None:
    """The same where stderr is this file, which is kept below a size. It is read later, so a line has its date."""
    _log_to(_Watched(lambda: rotate(path)), log, date_format="%Y-%m-%d %H:%M:%S")


def _log_to(stream: _Stderr, log: Log, *, date_format: str) -> None:
    handler = logging.StreamHandler(stream)
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt=date_format)
    handler.setFormatter(JsonLines() if log.format == "json" else text)
    logging.basicConfig(level=log.level.upper(), handlers=[handler])


def log_nothing() -> None:
    """Have no log line written, not even of errors: whoever calls reports those that matter."""
    logging.basicConfig(handlers=[logging.NullHandler()])
