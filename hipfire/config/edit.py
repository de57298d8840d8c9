"""Changes TOML files of settings and keeps what else is in them: comments, order, line ends. Knows no setting.

A change is made by one process at a time, and is in the file whole or not at all.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.items import InlineTable, Table

from hipfire.config.toml_file import Entry, KeyPath, read_entries, read_text
from hipfire.errors import ConfigError

_BOM = "\ufeff"
_NEW_FILE_MODE = 0o600


def change_file(path: Path, change: Callable[[list[Entry], tomlkit.TOMLDocument], None]) -> None:
    """Change a file, or make it. `change` gets what is in it, and the document to be changed.

    A link is followed. Raises ConfigError: the file is no TOML, or cannot be written.
    """
    target = Path(os.path.realpath(path))
    with _writing(path):
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target):
            entries = read_entries(target)
            text = read_text(target)
            has_crlf = "\r\n" in text and text.count("\r\n") == text.count("\n")
            document = tomlkit.parse(text.replace("\r\n", "\n") if has_crlf else text)
            change(entries, document)
            # Where the first lines went, the gap behind them goes as well.
            changed = tomlkit.dumps(document).removeprefix("" if text.startswith("\n") else "\n")
            _replace(target, changed.replace("\n", "\r\n") if has_crlf else changed)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ConfigError(
            f"cannot write {path}: {error.strerror}", hint="HIPFIRE_HOME puts the settings elsewhere"
        ) from error


@contextmanager
def _lock(target: Path) -> Iterator[None]:
    """Hold the lock of a file, which also goes when the process does. It stays there: to remove it would be a race."""
    with target.with_name(f".{target.name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _replace(target: Path, text: str) -> None:
    """Put a new file in the place of the old one, with its mode and its byte order mark."""
    bom, mode = "", _NEW_FILE_MODE
    if target.exists():
        mode = stat.S_IMODE(target.stat().st_mode)
        with target.open("rb") as file:
            bom = _BOM if file.read(3) == _BOM.encode() else ""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(bom + text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(mode)
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def set_in(document: MutableMapping[str, Any], path: KeyPath, value: object) -> None:
    """Set a key, in the tables that its path names; those that are not there are made."""
    *tables, name = path
    for table in tables:
        if table not in document:
            document[table] = tomlkit.table()
        document = document[table]
    document[name] = value


def remove_from(document: MutableMapping[str, Any], paths: Iterable[KeyPath]) -> None:
    """Remove keys, and tables in which nothing is left, not even a comment."""
    for path in paths:
        above: list[tuple[MutableMapping[str, Any], str]] = []
        table = document
        for name in path:
            above.append((table, name))
            table = table[name]
        while above:
            table, name = above.pop()
            del table[name]
            if table or not isinstance(table, Table | InlineTable) or table.as_string().strip(" \n{}"):
                break
