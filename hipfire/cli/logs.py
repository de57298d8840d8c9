"""Where log lines go: to stderr, with the time. Knows no commands."""

import logging
import sys


class _Stderr:
    """Whatever sys.stderr is at the moment: while a progress bar is shown, lines go above it."""

    def write(self, text: str) -> None:
        sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


def log_to_stderr(level: str) -> None:
    """Have log lines of this level and above written to stderr."""
    handler = logging.StreamHandler(_Stderr())
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=level.upper(), handlers=[handler])


def log_nothing() -> None:
    """Have no log line written, not even of errors: whoever calls reports those that matter."""
    logging.basicConfig(handlers=[logging.NullHandler()])
