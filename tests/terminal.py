"""A terminal of its own for a program: what it is typed, and what its screen and its scrollback show."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pexpect
import pyte

TIMEOUT_S = 60


class Screen:
    """What was written to a terminal, as it shows it: lines without the blanks at their end, scrollback first."""

    def __init__(self, *, width: int, height: int) -> None:
        self._screen = pyte.HistoryScreen(width, height, history=10_000, ratio=1)
        self._stream = pyte.Stream(self._screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    @property
    def lines(self) -> list[str]:
        width = self._screen.columns
        gone = ["".join(line[column].data for column in range(width)) for line in self._screen.history.top]
        lines = [line.rstrip() for line in [*gone, *self._screen.display]]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Terminal:
    """A program in a terminal, and a person before it."""

    def __init__(self, process: "pexpect.spawn[str]", screen: Screen) -> None:
        self.written = ""
        """All that the program wrote, as it wrote it."""
        self._process = process
        self._screen = screen

    @property
    def text(self) -> str:
        """What is on the screen, and above it, by now."""
        return self._screen.text

    def _read(self) -> None:
        piece = self._process.read_nonblocking(1 << 16, timeout=TIMEOUT_S)
        self.written += piece
        self._screen.feed(piece)

    def type(self, keys: str) -> None:
        self._process.send(keys)

    def wait_for(self, shown: str | Callable[[str], bool]) -> str:
        """Wait until a text is there, or what is there is as it should be; return all of it."""

        def is_there() -> bool:
            return shown in self.text if isinstance(shown, str) else shown(self.text)

        while not is_there():
            try:
                self._read()
            except (pexpect.EOF, pexpect.TIMEOUT):
                raise AssertionError(f"{shown} is not there:\n{self.text}") from None
        return self.text

    def wait_for_end(self) -> int:
        """Read to the end; return the exit status."""
        while True:
            try:
                self._read()
            except pexpect.EOF:
                break
        self._process.close()
        assert self._process.exitstatus is not None
        return self._process.exitstatus


@contextmanager
def in_terminal(
    command: list[str], *, variables: Mapping[str, str], cwd: Path, width: int = 80, height: int = 24
) -> Iterator[Terminal]:
    """Run a program in a terminal; it is killed in the end."""
    process = pexpect.spawn(
        command[0],
        command[1:],
        # Nobody here answers when the program asks where the cursor is.
        env={**variables, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
        cwd=str(cwd),
        dimensions=(height, width),
        encoding="utf-8",
        timeout=TIMEOUT_S,
    )
    # What is typed is a person's: no wait before each of it.
    process.delaybeforesend = None
    try:
        yield Terminal(process, Screen(width=width, height=height))
    finally:
        process.close(force=True)
