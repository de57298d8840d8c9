"""The loop of a chat: reads a message, and has it answered or does what a command says.

Knows no way to read or to show, and nothing of serves.
"""

import difflib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import attrs

from hipfire.cli.chat.conversation import Conversation
from hipfire.cli.chat.editor import Reader
from hipfire.cli.chat.screen import Screen
from hipfire.cli.question import Listener, Outcome, Turn
from hipfire.errors import ContextLengthExceeded, HipfireError

# "/usr/bin is a folder" is a message.
_COMMAND = re.compile(r"(?P<name>/[a-z]*)(?:\s+(?P<argument>.*))?", flags=re.DOTALL)


class Answerer(Protocol):
    """Whoever has the models. All of it may raise HipfireError but what is asked about a model."""

    def ask(self, model: str, turns: Sequence[Turn], listener: Listener) -> Outcome:
        """Have a model answer. KeyboardInterrupt ends the answer."""
        ...

    def find(self, name: str) -> str:
        """What a model is called; it is downloaded first if it is known and not here."""
        ...

    def is_loaded(self, model: str) -> bool: ...

    def context_length(self, model: str) -> int:
        """Tokens that a conversation with a loaded model may have; 0 where that is not known."""
        ...

    def models(self) -> list[str]:
        """The models that are here."""
        ...


class Session:
    """`run` goes on until nothing more is to be read, or /exit."""

    def __init__(self, conversation: Conversation, *, answerer: Answerer, screen: Screen) -> None:
        self._conversation = conversation
        self._answerer = answerer
        self._screen = screen
        self._is_over = False
        self._n_tokens = 0
        self._context_length = 0

    def run(self, reader: Reader) -> None:
        while not self._is_over and (text := reader.read()) is not None:
            if text.strip():
                self._take(text)

    def status(self) -> str:
        """For the line at the bottom."""
        room = f" of {self._context_length:,}" if self._context_length else ""
        used = f"  {self._n_tokens:,}{room} tokens" if self._n_tokens else ""
        return f"{self._conversation.model}{used}"

    def _take(self, text: str) -> None:
        match = _COMMAND.fullmatch(text.strip())
        if match is None:
            self._answer([*self._conversation.turns, Turn(role="user", content=text)])
        elif (command := COMMANDS.get(match["name"])) is not None:
            try:
                command.run(self, (match["argument"] or "").strip())
            except HipfireError as error:
                self._screen.note(str(error))
        else:
            near = difflib.get_close_matches(match["name"], COMMANDS, n=1)
            hint = f", did you mean {near[0]}?" if near else "; /help lists what there is"
            self._screen.note(f"there is no command {match['name']}{hint}")

    def _answer(self, turns: Sequence[Turn]) -> None:
        """Have the turns answered, which are the conversation's from then on; without any answer it stays as it was."""
        model = self._conversation.model
        text, reasoning = _Kept(), _Kept()
        outcome, problem = None, None
        waiting = "" if self._answerer.is_loaded(model) else f"loading {model}"
        try:
            with self._screen.view(waiting=waiting) as view:
                listener = Listener(on_text=text.and_to(view.on_text), on_reasoning=reasoning.and_to(view.on_reasoning))
                outcome = self._answerer.ask(model, self._conversation.opened(turns), listener)
        except KeyboardInterrupt:
            problem = "(stopped)"
        except ContextLengthExceeded as error:
            problem = f"the conversation is too long for {model}; /clear begins a new one ({error.message})"
        except HipfireError as error:
            problem = str(error)
        if outcome is not None or text.whole:
            answer = Turn(role="assistant", content=text.whole, reasoning=reasoning.whole)
            self._conversation.turns = [*turns, answer]
        if outcome is not None:
            self._comment(outcome)
        elif problem is not None:
            self._screen.note(problem)

    def _comment(self, outcome: Outcome) -> None:
        self._n_tokens = outcome.prompt_tokens + outcome.completion_tokens
        self._context_length = self._answerer.context_length(self._conversation.model)
        for warning in outcome.warnings:
            self._screen.note(f"({warning})")
        speed = outcome.timings.get("decode_tok_s", 0.0)
        self._screen.aside(f"{outcome.completion_tokens} tokens" + (f", {speed:,.0f} a second" if speed else ""))
        if outcome.finish_reason == "length":
            room = self._context_length
            if room and self._n_tokens >= room:
                self._screen.note(f"(cut off: all {room:,} tokens of the context are used; /clear begins a new one)")
            else:
                self._screen.note(f"(cut off after {outcome.completion_tokens} tokens; hipfire chat -n allows more)")

    def clear(self, _: str) -> None:
        self._conversation.turns = []
        self._n_tokens = 0
        self._screen.note("a new conversation begins")

    def set_system(self, text: str) -> None:
        if text:
            self._conversation.system = None if text == "-" else text
        system = self._conversation.system
        self._screen.note("there is no system prompt" if system is None else f"the system prompt: {system}")

    def switch_model(self, name: str) -> None:
        if name:
            self._conversation.model = self._answerer.find(name)
            self._screen.note(f"{self._conversation.model} answers from now on")
        else:
            others = ", ".join(self._answerer.models()) or "none in the models folder"
            self._screen.note(f"{self._conversation.model} answers; installed: {others}")

    def regenerate(self, _: str) -> None:
        if self._conversation.turns:
            self._answer(self._conversation.turns[:-1])
        else:
            self._screen.note("there is no answer yet")

    def save(self, name: str) -> None:
        path = Path(name or time.strftime("chat-%Y%m%d-%H%M%S.md")).expanduser()
        try:
            self._conversation.save(path)
        except OSError as error:
            self._screen.note(f"cannot save to {path}: {error.strerror}")
        else:
            self._screen.note(f"saved to {path}")

    def help(self, _: str) -> None:
        width = max(len(command.usage) for command in COMMANDS.values())
        lines = [f"{command.usage:<{width}}  {command.about}" for command in COMMANDS.values()]
        self._screen.note("\n".join([*lines, "", _KEYS]))

    def leave(self, _: str) -> None:
        self._is_over = True


class _Kept:
    """What was said so far of one kind."""

    def __init__(self) -> None:
        self.whole = ""

    def and_to(self, show: Callable[[str], None]) -> Callable[[str], None]:
        """What keeps a piece and shows it."""

        def take(piece: str) -> None:
            self.whole += piece
            show(piece)

        return take


@attrs.frozen(kw_only=True)
class Command:
    usage: str
    about: str
    run: Callable[[Session, str], None]


COMMANDS: Mapping[str, Command] = MappingProxyType(
    {
        "/clear": Command(usage="/clear", about="begin a new conversation", run=Session.clear),
        "/system": Command(
            usage="/system [TEXT]", about="show or set the system prompt; - removes it", run=Session.set_system
        ),
        "/model": Command(usage="/model [NAME]", about="show or choose who answers", run=Session.switch_model),
        "/regen": Command(usage="/regen", about="another answer instead of the last one", run=Session.regenerate),
        "/save": Command(usage="/save [FILE]", about="keep the conversation, as Markdown or .json", run=Session.save),
        "/help": Command(usage="/help", about="this list", run=Session.help),
        "/exit": Command(usage="/exit", about="leave, as Ctrl-D does; the server stays", run=Session.leave),
    }
)

_KEYS = """Ctrl-C stops an answer. For a message of several lines type Alt-Enter,
a backslash at the end of a line, or \"\"\" before and after it.
Up and down go through what was said before, Tab completes."""
