"""Where messages come from: a line editor on a terminal, lines of stdin elsewhere. Knows no conversation."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Style

from hipfire.cli.chat.multiline import is_complete, read_messages, unquoted

_STYLE = Style.from_dict(
    {"prompt": "bold", "placeholder": "ansibrightblack", "bottom-toolbar": "noreverse ansibrightblack"}
)

Choices = Mapping[str, Callable[[], Iterable[str]]]
"""What can be typed after a slash: each command with what may follow it."""


class Reader(Protocol):
    def read(self) -> str | None:
        """The next message; None when there are no more."""
        ...


class LineReader:
    """Messages from stdin, with a prompt on stderr where a person types them."""

    def __init__(self) -> None:
        self._messages: Iterator[str] = read_messages(sys.stdin)

    def read(self) -> str | None:
        if sys.stdin.isatty():
            sys.stderr.write("> ")
            sys.stderr.flush()
        return next(self._messages, None)


class Editor:
    """A line editor with history and completion. `status` is what the line at the bottom says."""

    def __init__(self, *, history: Path, choices: Choices, status: Callable[[], str], no_color: bool) -> None:
        self._session: PromptSession[str] = PromptSession(
            message=[("class:prompt", "> ")],
            multiline=True,
            prompt_continuation=[("class:prompt", "  ")],
            placeholder=_placeholder,
            bottom_toolbar=status,
            key_bindings=_bindings(),
            completer=_Completer(choices),
            complete_while_typing=True,
            history=_history(history),
            style=_STYLE,
            color_depth=ColorDepth.DEPTH_1_BIT if no_color else None,
            enable_open_in_editor=True,
        )

    def read(self) -> str | None:
        try:
            return unquoted(self._session.prompt())
        except KeyboardInterrupt:
            # As in a shell: what was typed is dropped.
            return ""
        except EOFError:
            return None


def _placeholder() -> StyleAndTextTuples:
    # What is drawn last stays on the terminal.
    if get_app().is_done:
        return []
    return [("class:placeholder", "Ask something; /help tells what else there is")]


def _bindings() -> KeyBindings:
    bindings = KeyBindings()

    @bindings.add("enter")
    def _enter(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.is_cursor_at_the_end and not is_complete(buffer.text):
            if buffer.text.endswith("\\"):
                buffer.delete_before_cursor()
            buffer.newline(copy_margin=False)
        else:
            buffer.validate_and_handle()

    @bindings.add("escape", "enter")
    def _newline(event: KeyPressEvent) -> None:
        event.current_buffer.newline(copy_margin=False)

    return bindings


class _Completer(Completer):
    """Completes commands and what follows them; nothing in a message."""

    def __init__(self, choices: Choices) -> None:
        self._choices = choices

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        text = document.text_before_cursor
        if not text.startswith("/") or "\n" in document.text:
            return
        name, space, argument = text.partition(" ")
        candidates = self._choices.get(name, lambda: ())() if space else self._choices
        typed = argument if space else name
        for candidate in candidates:
            if candidate.startswith(typed):
                yield Completion(candidate, start_position=-len(typed))


class _PrivateHistory(FileHistory):
    """A history in a file for its owner alone. A disk that is full costs an entry, not the conversation."""

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            super().store_string(string)


def _history(path: Path) -> History:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
    except OSError:
        # A folder that cannot be written is no reason not to talk.
        return InMemoryHistory()
    return _PrivateHistory(str(path))
