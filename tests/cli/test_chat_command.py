"""`hipfire chat`, the real program, in a terminal and without one."""

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve
from terminal import Terminal

pytestmark = pytest.mark.slow  # a whole server and its engine start

ENTER, ALT_ENTER, UP, TAB = "\r", "\x1b\r", "\x1b[A", "\t"
CTRL_C, CTRL_D = "\x03", "\x04"
# What stands behind the prompt until something is typed.
PROMPT = "> Ask so"


@pytest.fixture
def stopped(program: Program) -> Iterator[Program]:
    """The program; whatever serve it leaves in the background is stopped in the end."""
    yield program
    program.run("stop", "--force")


def pasted(text: str) -> str:
    return f"\x1b[200~{text}\x1b[201~"


def say(terminal: Terminal, text: str, *, answers: int) -> None:
    """Type a message, and wait for its answer: so many there are then."""
    terminal.type(text + ENTER)
    terminal.wait_for(
        lambda shown: len(re.findall(r"^\d+ tokens", shown, flags=re.MULTILINE)) == answers and PROMPT in shown
    )


def wait_for_line(terminal: Terminal, pattern: str) -> None:
    terminal.wait_for(lambda shown: re.search(pattern, shown, flags=re.MULTILINE) is not None)


def leave(terminal: Terminal) -> None:
    terminal.wait_for(PROMPT)
    terminal.type(CTRL_D)
    assert terminal.wait_for_end() == 0
    assert PROMPT not in terminal.text


def saved(terminal: Terminal, folder: Path) -> list[str]:
    """What the user said, as /save keeps it."""
    terminal.type("/save chat.json" + ENTER)
    terminal.wait_for("saved to chat.json")
    messages = json.loads((folder / "chat.json").read_text())["messages"]
    return [message["content"] for message in messages if message["role"] == "user"]


def test_without_a_serve_one_is_started_and_stays(stopped: Program) -> None:
    with stopped.in_terminal("chat", str(TINY), "-n", "4", "-t", "0") as terminal:
        shown = terminal.wait_for(PROMPT)
        assert f"started a server at http://127.0.0.1:{stopped.variables['HIPFIRE_PORT']}; it goes on until" in shown
        say(terminal, "Hello", answers=1)
        terminal.type("/exit" + ENTER)
        assert terminal.wait_for_end() == 0
    roles = [(row["role"], row["model"]) for row in stopped.ps()]
    assert roles == [("serve", str(TINY)), ("engine", str(TINY))]
    assert "serve" in Path(f"/proc/{stopped.ps()[0]['pid']}/cmdline").read_text()


def test_what_goes_wrong_at_the_start_is_one_line(stopped: Program) -> None:
    done = stopped.run("chat", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hipfire: there is no model 'nothing'")
    assert done.stderr.count("\n") == 1


def test_an_interrupt_stops_the_answer_and_not_the_program(slow_serve: Serve) -> None:
    url = f"http://127.0.0.1:{slow_serve.port}/stats"
    with slow_serve.program.in_terminal("chat") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("Hello" + ENTER)
        # Something of the answer is there.
        terminal.wait_for(lambda shown: len(shown.partition("> Hello")[2].strip()) > 3)
        terminal.type(CTRL_C)
        terminal.wait_for(lambda shown: "(stopped)" in shown and PROMPT in shown)
        deadline = time.monotonic() + TIMEOUT_S
        while (stats := httpx.get(url, trust_env=False).json())["in_flight"] and time.monotonic() < deadline:
            pass
        assert (stats["in_flight"], stats["requests"]["cancelled"]) == (0, 1)
        # At the prompt it drops what was typed.
        terminal.type("dropped")
        terminal.wait_for("> dropped")
        terminal.type(CTRL_C)
        terminal.wait_for(PROMPT)
        terminal.type("/help" + ENTER)
        terminal.wait_for("/regen ")
        leave(terminal)


def test_messages_may_have_several_lines(shared_serve: Serve) -> None:
    home = shared_serve.program.home
    with shared_serve.program.in_terminal("chat", "-n", "2") as terminal:
        terminal.wait_for(PROMPT)
        say(terminal, f"one{ALT_ENTER}two", answers=1)
        say(terminal, f"three\\{ENTER}four", answers=2)
        say(terminal, f'"""five{ENTER}{ENTER}six"""', answers=3)
        say(terminal, pasted("seven\n  eight"), answers=4)
        assert saved(terminal, home) == ["one\ntwo", "three\nfour", "five\n\nsix", "seven\n  eight"]


def test_what_was_typed_is_kept_for_the_next_time(shared_serve: Serve) -> None:
    program = shared_serve.program
    history = program.root / "chat_history"
    for keys in ("/system said before", UP):
        with program.in_terminal("chat") as terminal:
            terminal.wait_for(PROMPT)
            terminal.type(keys + ENTER)
            terminal.wait_for("the system prompt: said before")
            leave(terminal)
    assert "+/system said before" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_commands_and_models_are_completed(shared_serve: Serve) -> None:
    shared_serve.program.models_dir.mkdir(parents=True)
    shared_serve.program.models_dir.joinpath("mine.gguf").symlink_to(TINY)
    with shared_serve.program.in_terminal("chat") as terminal:
        terminal.wait_for(PROMPT)
        for typed, offered in (("/mod", "/model"), (" mi", "mine")):
            terminal.type(typed)
            # It is offered below the line, and Tab takes it.
            wait_for_line(terminal, rf"^ +{offered} *$")
            terminal.type(TAB)
            wait_for_line(terminal, rf"^> .*{offered}$")
        terminal.type(ENTER)
        terminal.wait_for("mine answers from now on")


@pytest.mark.parametrize("width", [12, 80])
def test_no_colour_and_narrow_terminals(width: int, shared_serve: Serve) -> None:
    with shared_serve.program.in_terminal("chat", "-n", "4", width=width, NO_COLOR="1") as terminal:
        terminal.wait_for(PROMPT)
        terminal.type("Hello" + ENTER)
        terminal.wait_for("4 tokens")
        leave(terminal)
    # Bold and dim are no colours.
    codes = {code for sequence in re.findall(r"\x1b\[([\d;]*)m", terminal.written) for code in sequence.split(";")}
    assert codes <= {"", "0", "1", "2", "22"}


def test_without_a_terminal_the_answers_alone_go_to_stdout(shared_serve: Serve) -> None:
    program = shared_serve.program
    done = program.run("chat", "-n", "8", "-t", "0", stdin="Hello\n/model\nGo on\n")
    assert done.returncode == 0
    assert done.stderr.startswith(f"(cut off after 8 tokens; hipfire chat -n allows more)\n{TINY} answers; installed: ")
    first, _, second = done.stdout.partition("\n\n")
    assert first == program.run("run", str(TINY), "-n", "8", "-t", "0", "Hello").stdout.removesuffix("\n")
    assert second


def test_a_conversation_that_is_too_long_says_what_to_do(stopped: Program) -> None:
    assert stopped.run("serve", "-d", "--wait", "--max-seq", "512", str(TINY)).returncode == 0
    done = stopped.run("chat", "-n", "2", stdin="word " * 600 + "\n/clear\nHello\n")
    assert done.returncode == 0
    assert f"the conversation is too long for {TINY}; /clear begins a new one (the serve at http" in done.stderr
    assert done.stdout.strip()


def test_a_file_that_the_serve_does_not_have_is_one_line(shared_serve: Serve) -> None:
    other = shared_serve.program.home / "other.gguf"
    other.symlink_to(TINY)
    done = shared_serve.program.run("chat", str(other))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert f"was started with another model than {other} (hipfire restart -d with the path" in done.stderr
