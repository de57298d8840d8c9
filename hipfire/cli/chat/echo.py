"""Keeps what is typed while an answer comes from being written into it. Knows no answers."""

import termios
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_echo(descriptor: int) -> Iterator[None]:
    """Have a terminal not show what is typed; whoever reads it next gets that all the same. Ctrl-C works as ever."""
    before = termios.tcgetattr(descriptor)
    silent = before[:]
    silent[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, silent)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSANOW, before)
