"""What a chat does with what is typed: a scripted model answers, a list takes what is shown."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import attrs
import pytest

from hipfire.cli.chat.conversation import Conversation
from hipfire.cli.chat.session import Session
from hipfire.cli.question import Listener, Outcome, Turn
from hipfire.errors import ContextLengthExceeded, HipfireError, ModelNotFound

Answer = Callable[[Listener], Outcome]


def outcome(**fields: object) -> Outcome:
    said = {"model": "m", "finish_reason": "stop", "prompt_tokens": 3, "completion_tokens": 2, "timings": {}}
    return Outcome(**{**said, **fields})  # type: ignore[arg-type]


def says(text: str, *, reasoning: str = "", **fields: object) -> Answer:
    def answer(listener: Listener) -> Outcome:
        if reasoning:
            listener.on_reasoning(reasoning)
        listener.on_text(text)
        return outcome(**fields)

    return answer


def fails(error: BaseException, *, after: str = "") -> Answer:
    def answer(listener: Listener) -> Outcome:
        if after:
            listener.on_text(after)
        raise error

    return answer


class ScriptedAnswerer:
    """Gives its answers in turn."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[tuple[str, list[tuple[str, str]]]] = []
        self._answers = iter(answers)

    def ask(self, model: str, turns: Sequence[Turn], listener: Listener) -> Outcome:
        self.asked.append((model, [(turn.role, turn.content) for turn in turns]))
        return next(self._answers)(listener)

    def find(self, name: str) -> str:
        if name == "nothing":
            raise ModelNotFound("there is no model 'nothing'")
        return f"{name}:1b"

    def is_loaded(self, model: str) -> bool:
        return model == "m"

    def context_length(self, model: str) -> int:
        del model
        return 2048

    def models(self) -> list[str]:
        return ["m", "n"]


@attrs.define
class Shown:
    """A screen that keeps what it is shown, each thing with its kind."""

    lines: list[str] = attrs.field(factory=list)

    def view(self, *, waiting: str) -> Self:
        self.lines.append(f"[{waiting}]")
        return self

    def note(self, text: str) -> None:
        self.lines.append(text)

    def aside(self, text: str) -> None:
        self.lines.append(f"({text})")

    def on_text(self, piece: str) -> None:
        self.lines.append(piece)

    def on_reasoning(self, piece: str) -> None:
        self.lines.append(f"~{piece}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class Typed:
    def __init__(self, *messages: str) -> None:
        self.messages = list(messages)

    def read(self) -> str | None:
        return self.messages.pop(0) if self.messages else None


def chat(answerer: ScriptedAnswerer, *messages: str, system: str | None = None) -> list[str]:
    """What a chat shows in which these messages are typed."""
    shown = Shown()
    Session(Conversation(model="m", system=system), answerer=answerer, screen=shown).run(Typed(*messages))
    return shown.lines


def test_each_turn_has_the_ones_before_it() -> None:
    answerer = ScriptedAnswerer(says("Hi.", reasoning="Hm."), says("Fine.", timings={"decode_tok_s": 8.2}))
    lines = chat(answerer, "Hello", "  \n", "How\nare you?", system="Be terse.")
    assert lines == ["[]", "~Hm.", "Hi.", "(2 tokens)", "[]", "Fine.", "(2 tokens, 8 a second)"]
    opening = [("system", "Be terse."), ("user", "Hello")]
    assert answerer.asked == [
        ("m", opening),
        ("m", [*opening, ("assistant", "Hi."), ("user", "How\nare you?")]),
    ]


def test_a_stopped_answer_stays_as_far_as_it_came() -> None:
    answerer = ScriptedAnswerer(fails(KeyboardInterrupt(), after="Once"), fails(KeyboardInterrupt()), says("Yes."))
    assert chat(answerer, "a", "b", "c") == ["[]", "Once", "(stopped)", "[]", "(stopped)", "[]", "Yes.", "(2 tokens)"]
    # What got no answer at all was not said.
    assert answerer.asked[2][1] == [("user", "a"), ("assistant", "Once"), ("user", "c")]


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (HipfireError("it broke off"), "it broke off"),
        (
            ContextLengthExceeded("9 tokens, 8 fit"),
            "the conversation is too long for m; /clear begins a new one (9 tokens, 8 fit)",
        ),
    ],
)
def test_a_failure_is_said_and_leaves_the_conversation_as_it_was(error: HipfireError, line: str) -> None:
    answerer = ScriptedAnswerer(says("Hi."), fails(error), says("Yes."))
    assert line in chat(answerer, "a", "b", "c")
    assert answerer.asked[2][1] == [("user", "a"), ("assistant", "Hi."), ("user", "c")]


@pytest.mark.parametrize(
    ("n_prompt", "line"),
    [
        (3, "(cut off after 2 tokens; hipfire chat -n allows more)"),
        (2046, "(cut off: all 2,048 tokens of the context are used; /clear begins a new one)"),
    ],
)
def test_an_answer_that_was_cut_off_says_why(n_prompt: int, line: str) -> None:
    assert line in chat(ScriptedAnswerer(says("Hi.", finish_reason="length", prompt_tokens=n_prompt)), "a")


def test_warnings_are_shown() -> None:
    assert "(thinking: dropped)" in chat(ScriptedAnswerer(says("Hi.", warnings=["thinking: dropped"])), "a")


def test_clear_begins_a_new_conversation_under_the_same_system_prompt() -> None:
    answerer = ScriptedAnswerer(says("Hi."), says("Yes."))
    assert "a new conversation begins" in chat(answerer, "a", "/clear", "b", system="s")
    assert answerer.asked[1][1] == [("system", "s"), ("user", "b")]


def test_the_system_prompt_is_shown_set_and_removed() -> None:
    answerer = ScriptedAnswerer(says("Hi."), says("Yes."))
    lines = chat(answerer, "/system", "/system Be\nbrief.", "a", "/system -", "b")
    assert [line for line in lines if "system" in line] == [
        "there is no system prompt",
        "the system prompt: Be\nbrief.",
        "there is no system prompt",
    ]
    assert [turns[0] for _, turns in answerer.asked] == [("system", "Be\nbrief."), ("user", "a")]


def test_another_model_goes_on_with_the_conversation() -> None:
    answerer = ScriptedAnswerer(says("Hi."), says("Yes."))
    lines = chat(answerer, "a", "/model", "/model nothing", "/model big", "b")
    assert lines[3:] == [
        "m answers; installed: m, n",
        "there is no model 'nothing'",
        "big:1b answers from now on",
        "[loading big:1b]",
        "Yes.",
        "(2 tokens)",
    ]
    assert answerer.asked[1] == ("big:1b", [("user", "a"), ("assistant", "Hi."), ("user", "b")])


def test_regen_asks_for_another_answer() -> None:
    answerer = ScriptedAnswerer(says("Hi."), says("Ho."), fails(HipfireError("broken")), says("Yes."))
    lines = chat(answerer, "/regen", "a", "/regen", "/regen", "b")
    assert lines[0] == "there is no answer yet"
    assert answerer.asked[1] == answerer.asked[0]
    # One that fails costs nothing.
    assert answerer.asked[3][1] == [("user", "a"), ("assistant", "Ho."), ("user", "b")]


def test_exit_leaves() -> None:
    assert chat(ScriptedAnswerer(), "/exit", "a") == []


@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("/sav", "there is no command /sav, did you mean /save?"),
        ("/zzz", "there is no command /zzz; /help lists what there is"),
    ],
)
def test_an_unknown_command_is_no_message(typed: str, line: str) -> None:
    assert chat(ScriptedAnswerer(), typed) == [line]


def test_a_path_is_a_message() -> None:
    assert "Hi." in chat(ScriptedAnswerer(says("Hi.")), "/usr/bin is what?")


def test_help_names_every_command() -> None:
    (text,) = chat(ScriptedAnswerer(), "/help")
    for name in ("/clear", "/system", "/model", "/regen", "/save", "/help", "/exit"):
        assert f"\n{name}" in f"\n{text}"
    assert max(map(len, text.splitlines())) < 80


def test_a_conversation_is_saved_as_markdown_or_json(tmp_path: Path) -> None:
    answerer = ScriptedAnswerer(says("Hi.", reasoning="Hm."))
    markdown, document = tmp_path / "a b.md", tmp_path / "chat.json"
    lines = chat(answerer, "Hello", f"/save {markdown}", f"/save {document}", f"/save {markdown}", system="s")
    assert lines[-3:] == [f"saved to {markdown}", f"saved to {document}", f"cannot save to {markdown}: File exists"]
    assert markdown.read_text() == "## System\n\ns\n\n## You\n\nHello\n\n## m\n\nHi.\n"
    assert json.loads(document.read_text())["messages"][1:] == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "Hi."},
    ]
