"""Messages of more than one line: when Enter ends one, and what is in it. Knows no terminal.

A backslash at the end of a line, or three double quotes around several, mean that more follows.
"""

from collections.abc import Iterator
from typing import TextIO

QUOTES = '"""'


def is_complete(text: str) -> bool:
    """Whether Enter at the end of this text sends it."""
    return not text.endswith("\\") and not is_quoting(text)


def is_quoting(text: str) -> bool:
    """Whether a block in quotes has begun and not ended."""
    opened = text.lstrip()
    return opened.startswith(QUOTES) and (
        len(opened.rstrip()) < 2 * len(QUOTES) or not opened.rstrip().endswith(QUOTES)
    )


def unquoted(text: str) -> str:
    """The text without the quotes around it, if it has both."""
    stripped = text.strip()
    if len(stripped) >= 2 * len(QUOTES) and stripped.startswith(QUOTES) and stripped.endswith(QUOTES):
        return stripped[len(QUOTES) : -len(QUOTES)].strip("\n")
    return text


def read_messages(lines: TextIO) -> Iterator[str]:
    """The messages that lines make up."""
    text = ""
    for line in lines:
        text += line.rstrip("\n")
        if is_complete(text):
            yield unquoted(text)
            text = ""
        else:
            text = text.removesuffix("\\") + "\n"
    if text.strip():
        yield unquoted(text.rstrip("\n"))
