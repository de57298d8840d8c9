"""Which installed file was pulled by which `hf:` name, so that the name means something without the hub.

A note for each file, in `.sources` beside the models. Knows no network.
"""

import json
from pathlib import Path

from hipfire.catalog.hub_name import PREFIX
from hipfire.catalog.registry import Card

_FOLDER = ".sources"


def note_source(card: Card, models_dir: Path) -> None:
    """Note the name that a file was pulled by, besides those of earlier times. Raises OSError."""
    if not card.tag.startswith(PREFIX):
        return
    note = models_dir / _FOLDER / f"{card.file}.json"
    names = _names(note)
    if card.tag not in names:
        note.parent.mkdir(exist_ok=True)
        scratch = note.with_suffix(".new")
        scratch.write_text(json.dumps({"names": [*names, card.tag]}), encoding="utf-8")
        scratch.replace(note)


def forget_source(path: Path) -> None:
    """A model's file goes, and the note of it. Raises OSError."""
    (path.parent / _FOLDER / f"{path.name}.json").unlink(missing_ok=True)


def find_pulled(name: str, models_dir: Path) -> Path | None:
    """The file that was pulled by an `hf:` name, if it is there."""
    if not name.startswith(PREFIX):
        return None
    for note in sorted((models_dir / _FOLDER).glob("*.json")):
        path = models_dir / note.name.removesuffix(".json")
        if name in _names(note) and path.exists():
            return path
    return None


def _names(note: Path) -> list[str]:
    try:
        names = json.loads(note.read_text(encoding="utf-8"))["names"]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
