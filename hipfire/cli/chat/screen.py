"""Shows an answer while it comes: on a terminal as Markdown, elsewhere as it is. Knows no conversation and no serve.

On a terminal each finished block is printed once, for good; only the block that is being written is drawn anew, and of
that no more than fits: what scrolled away could not be taken back.
"""

import sys
import threading
from contextlib import ExitStack
from types import TracebackType
from typing import Protocol, Self

import click
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.segment import Segment
from rich.spinner import Spinner
from rich.text import Text

from hipfire.cli.chat.blocks import Blocks
from hipfire.cli.chat.echo import no_echo
from hipfire.cli.chat.markdown import AnswerMarkdown
from hipfire.cli.printable import printable

_REFRESH_PER_S = 12


class AnswerView(Protocol):
    """A context manager around one answer."""

    def on_text(self, piece: str) -> None: ...

    def on_reasoning(self, piece: str) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Screen(Protocol):
    """Where a chat shows what it has to show."""

    def view(self, *, waiting: str) -> AnswerView: ...

    def note(self, text: str) -> None:
        """Say something that is no answer."""
        ...

    def aside(self, text: str) -> None:
        """Say something that only a person at a terminal wants to know."""
        ...


class PlainScreen:
    """Answers on stdout, with an empty line between them, all else on stderr."""

    def __init__(self) -> None:
        self._has_answered = False

    def view(self, *, waiting: str) -> AnswerView:
        del waiting
        if self._has_answered:
            sys.stdout.write("\n")
        self._has_answered = True
        return PlainView()

    def note(self, text: str) -> None:
        click.echo(text, err=True)

    def aside(self, text: str) -> None:
        """Nothing: nobody is there."""


class TerminalScreen:
    """Everything on the terminal that stdin and stdout are."""

    def __init__(self, *, no_color: bool) -> None:
        self._console = Console(highlight=False, no_color=no_color or None)

    def view(self, *, waiting: str) -> AnswerView:
        self._console.print()
        return TerminalView(self._console, waiting=waiting, typed_at=sys.stdin.fileno())

    def note(self, text: str) -> None:
        self._console.print(Text(printable(text)), style="cyan")

    def aside(self, text: str) -> None:
        self._console.print(Text(f"\n{text}\n", style="dim"))


class PlainView:
    """The answer's text on stdout, piece by piece, and no reasoning."""

    def __init__(self) -> None:
        self._is_at_line_start = True

    def on_text(self, piece: str) -> None:
        sys.stdout.write(piece)
        sys.stdout.flush()
        self._is_at_line_start = piece.endswith("\n")

    def on_reasoning(self, piece: str) -> None:
        """Nothing: whoever reads stdout wants the answer."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_at_line_start:
            self.on_text("\n")


class TerminalView:
    """Markdown; reasoning dimmed and as it is. `waiting` is shown until something comes.

    `typed_at`: the descriptor of the terminal that keys come from.
    """

    def __init__(
        self,
        console: Console,
        *,
        waiting: str,
        typed_at: int | None = None,
        refresh_per_s: float = _REFRESH_PER_S,
    ) -> None:
        self._console = console
        self._typed_at = typed_at
        self._cleanup = ExitStack()
        self._spinner: Spinner | None = Spinner("dots", Text(waiting, style="dim"), style="dim")
        self._thought = ""
        self._is_thinking = False
        self._answer = Blocks()
        self._has_printed = False
        # rich's own thread may write what it drew before a print after it.
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._drawer = threading.Thread(target=self._draw, args=(1 / refresh_per_s,), daemon=True)
        self._live = Live(
            _Pending(self),
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def on_text(self, piece: str) -> None:
        with self._lock:
            self._spinner = None
            self._end_thought()
            for block in self._answer.feed(printable(piece)):
                self._print_block(block)

    def on_reasoning(self, piece: str) -> None:
        with self._lock:
            self._spinner = None
            self._print_block(self._answer.close())
            lines, newline, self._thought = (self._thought + printable(piece)).rpartition("\n")
            if newline:
                self._print_thought(lines)

    def _draw(self, period_s: float) -> None:
        while not self._is_over.wait(period_s):
            with self._lock:
                self._live.refresh()

    def pending(self) -> RenderableType:
        """What is drawn below all that was printed for good."""
        if self._spinner is not None:
            return self._spinner
        if self._thought:
            return self._apart(Text(self._thought, style="dim"), is_apart=not self._is_thinking)
        return self._apart(AnswerMarkdown(self._answer.rest)) if self._answer.rest.strip() else ""

    def _end_thought(self) -> None:
        if self._thought:
            thought, self._thought = self._thought, ""
            self._print_thought(thought)
        self._is_thinking = False

    def _print_thought(self, lines: str) -> None:
        """Lines of reasoning: what belongs together stands together."""
        if not self._is_thinking:
            lines = lines.lstrip("\n")
        if lines:
            self._console.print(self._apart(Text(lines, style="dim"), is_apart=not self._is_thinking))
            self._has_printed = self._is_thinking = True

    def _print_block(self, block: str) -> None:
        if block.strip():
            self._console.print(self._apart(AnswerMarkdown(block)))
            self._has_printed = True

    def _apart(self, renderable: RenderableType, *, is_apart: bool = True) -> RenderableType:
        """With an empty line above it, except at the top."""
        return Group("", renderable) if is_apart and self._has_printed else renderable

    def __enter__(self) -> Self:
        if self._typed_at is not None:
            self._cleanup.enter_context(no_echo(self._typed_at))
        self._live.start()
        self._drawer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._drawer.join()
        self._spinner = None
        with self._cleanup:
            self._end_thought()
            self._print_block(self._answer.close())
            self._live.stop()


class _Pending:
    """What a view has not printed for good, rendered when it is drawn, so that nothing is there twice.

    The last lines of it, if it is higher than the screen.
    """

    def __init__(self, view: TerminalView) -> None:
        self._view = view

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._view.pending(), options, pad=False)
        for line in lines[1 - console.height :]:
            yield from line
            yield Segment.line()
