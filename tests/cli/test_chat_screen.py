"""What an answer looks like on a terminal, while it comes and in the end."""

import io

import pytest
from rich.console import Console
from terminal import Screen

from hipfire.cli.chat.screen import PlainView, TerminalView

WIDTH, HEIGHT = 40, 8

MARKDOWN = """# Fire

A *spark*
and a second line with <b>HTML</b> in it.

1. one
2. two

```python
def f(x):
    return x
```

| a | b |
|---|---|
| 1 | [link](http://x) |

- last
"""

SHOWN = """Fire

A spark
and a second line with <b>HTML</b> in
it.

 1 one
 2 two

def f(x):
    return x


 a  b
 ──────────────────
 1  link (http://x)


 • last"""


def shown(
    pieces: list[tuple[str, str]], *, waiting: str = "", refresh_per_s: float = 2000, height: int = HEIGHT
) -> str:
    """What a terminal shows in the end of pieces of the answer ("a") and of the reasoning ("r")."""
    out = io.StringIO(newline="\r\n")
    console = Console(file=out, force_terminal=True, width=WIDTH, height=height, legacy_windows=False)
    with TerminalView(console, waiting=waiting, refresh_per_s=refresh_per_s) as view:
        for kind, piece in pieces:
            (view.on_text if kind == "a" else view.on_reasoning)(piece)
    screen = Screen(width=WIDTH, height=height)
    screen.feed(out.getvalue().replace("\n", "\r\n"))
    return screen.text


@pytest.mark.parametrize("size", [1, 3, 17, 1000])
def test_an_answer_is_there_once_however_it_comes(size: int) -> None:
    pieces = [("a", MARKDOWN[begin : begin + size]) for begin in range(0, len(MARKDOWN), size)]
    assert shown(pieces) == SHOWN


def test_a_block_higher_than_the_screen_is_there_once() -> None:
    lines = [f"line {number}" for number in range(50)]
    pieces = [("a", "```\n"), *(("a", f"{line}\n") for line in lines), ("a", "```\n")]
    assert shown(pieces).splitlines() == lines


def test_reasoning_stands_above_the_answer_as_it_is() -> None:
    pieces = [("r", "\n\n# Hm.\n"), ("r", "I thi"), ("r", "nk."), ("a", "\n\nYes"), ("a", ".")]
    assert shown(pieces) == "# Hm.\nI think.\n\nYes."


def test_reasoning_may_come_again() -> None:
    assert (
        shown([("r", "one"), ("a", "two"), ("r", "three\nfour"), ("a", "five")]) == "one\n\ntwo\n\nthree\nfour\n\nfive"
    )


def test_an_answer_without_anything_leaves_nothing() -> None:
    assert shown([], waiting="loading m") == ""
    assert shown([("a", "\n \n")]) == ""


def test_control_characters_do_not_reach_the_terminal() -> None:
    assert shown([("a", "a\x1b[2Jb\x07\x9b1m"), ("r", "\x1b]0;title\x07")]) == "a�[2Jb��1m\n\n�]0;title�"


def test_elsewhere_the_answer_is_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    with PlainView() as view:
        view.on_reasoning("Hm.")
        view.on_text("# a\n")
        view.on_text("*b*")
    assert capsys.readouterr().out == "# a\n*b*\n"
