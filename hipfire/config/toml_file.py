"""Reads TOML files of settings, each value with its line. Knows no setting."""

import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from hipfire.errors import ConfigError

KeyPath = tuple[str, ...]
"""The parts of a dotted key, tables first."""


@attrs.frozen(kw_only=True)
class Entry:
    """A value that is no table. `place` is the file and the line: `/home/me/.hipfire/config.toml:3`."""

    path: KeyPath
    value: object
    place: str


def read_text(path: Path) -> str:
    """The file as it is, line ends included, without a byte order mark; empty where there is no file.

    Raises ConfigError.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}:{line}: this is not UTF-8", hint="save the file as UTF-8") from error


def read_entries(path: Path) -> list[Entry]:
    """The file's values in order. Raises ConfigError, which names line and column where it is no TOML."""
    text = read_text(path)
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(_where_it_broke(path, text, str(error))) from error
    except RecursionError:
        raise ConfigError(f"{path}: this is nested too deeply") from None
    except ValueError:
        # Python's own limit, against numbers that take a second to read.
        raise ConfigError(f"{path}: a number in it has too many digits") from None
    lines = lines_of(text)
    return [Entry(path=key, value=value, place=f"{path}:{line_of(key, lines)}") for key, value in _leaves(document)]


def _leaves(document: Mapping[str, object], above: KeyPath = ()) -> Iterator[tuple[KeyPath, object]]:
    for name, value in document.items():
        if isinstance(value, dict):
            yield from _leaves(value, (*above, name))
        else:
            yield (*above, name), value


_AT = re.compile(r"(?P<what>.*) \(at (?:line (?P<line>\d+), column (?P<column>\d+)|end of document)\)", re.DOTALL)


def _where_it_broke(path: Path, text: str, message: str) -> str:
    match = _AT.fullmatch(message)
    if match is None:
        return f"{path}: {message}"
    lines = text.rstrip("\n").split("\n")
    line, column = (match["line"], match["column"]) if match["line"] else (len(lines), len(lines[-1]) + 1)
    what = match["what"]
    return f"{path}:{line}:{column}: {what[:1].lower()}{what[1:]}"


_PART = r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*(?P<key>{_KEY})\s*\]")
_ASSIGNMENT = re.compile(rf"\s*(?P<key>{_KEY})\s*=(?P<value>.*)")
_TRIPLE = re.compile(r'"""|\'\'\'')


def lines_of(text: str) -> Mapping[KeyPath, int]:
    """The line, from 1, of each header and assignment of a valid TOML text."""
    found: dict[KeyPath, int] = {}
    table: KeyPath = ()
    quotes: str | None = None
    for number, line in enumerate(text.split("\n"), 1):
        if quotes is None:
            if header := _HEADER.match(line):
                table = _parts(header["key"])
                found.setdefault(table, number)
            elif assignment := _ASSIGNMENT.match(line):
                found[(*table, *_parts(assignment["key"]))] = number
        for mark in _TRIPLE.findall(line):
            # Inside a text of several lines only its own quotes mean anything.
            if quotes in {None, mark}:
                quotes = mark if quotes is None else None
    return found


def _parts(key: str) -> KeyPath:
    # Whatever TOML makes of quotes and escapes in it.
    document: object = tomllib.loads(f"{key} = 0")
    parts: list[str] = []
    while isinstance(document, dict):
        ((part, document),) = document.items()
        parts.append(part)
    return tuple(parts)


def line_of(key: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    """The line of a key: its own, or that of the inline table it is in."""
    return next((lines[key[:n]] for n in range(len(key), 0, -1) if key[:n] in lines), 1)
