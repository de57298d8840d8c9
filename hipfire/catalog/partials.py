"""Downloads that are under way or were broken off: a folder each in `.downloads`, which says what it is to become."""

import fcntl
import json
import shutil
from pathlib import Path

import attrs

from hipfire.catalog.registry import Card

_ABOUT = "about.json"


@attrs.frozen(kw_only=True)
class Partial:
    """`nbytes` of `total_nbytes` are here. `name` pulls the rest; `running`: somebody is at it."""

    name: str
    file: str
    nbytes: int
    total_nbytes: int
    running: bool
    folder: Path


def begin_partial(card: Card, models_dir: Path) -> Path:
    """The folder of a download, whose lock is held; with what an earlier attempt has left in it."""
    folder = models_dir / ".downloads" / card.file
    folder.mkdir(parents=True, exist_ok=True)
    (folder / _ABOUT).write_text(json.dumps({"name": card.tag, "nbytes": card.download_nbytes}), encoding="utf-8")
    return folder


def end_partial(folder: Path) -> None:
    """The download is done, and what is left of it goes."""
    shutil.rmtree(folder)


def drop_partial(folder: Path, *, only_if_empty: bool = False) -> None:
    """Give a download up; with `only_if_empty` only where nothing has come that the next attempt could use."""
    if not only_if_empty or not _nbytes(folder):
        shutil.rmtree(folder, ignore_errors=True)


def list_partials(models_dir: Path) -> list[Partial]:
    """The downloads that are not done, by file."""
    return [partial for folder in sorted((models_dir / ".downloads").glob("*/")) if (partial := _read(folder))]


def _read(folder: Path) -> Partial | None:
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        return Partial(
            name=about["name"],
            file=folder.name,
            nbytes=_nbytes(folder),
            total_nbytes=about["nbytes"],
            running=_is_locked(folder.with_name(f"{folder.name}.lock")),
            folder=folder,
        )
    except (OSError, ValueError, KeyError, TypeError):
        # It has just ended, or is no download.
        return None


def _nbytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != _ABOUT)


def _is_locked(path: Path) -> bool:
    try:
        with path.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
