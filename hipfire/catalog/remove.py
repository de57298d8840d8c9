"""Removes a model's files. Knows no terminal: whoever calls has asked."""

import re
import shutil
from pathlib import Path

from hipfire.catalog.sources import forget_source
from hipfire.catalog.store import InstalledModel
from hipfire.errors import ModelFileError, ModelNotFound

_FIRST_PART = re.compile(r"(?P<stem>.+)-00001-of-(?P<count>\d{5})\.gguf")


def files_of(model: InstalledModel, models_dir: Path) -> list[Path]:
    """What a model is made of: its file, all parts of a split one, or a folder.

    Raises ModelNotFound for a model elsewhere than directly in the models folder: that is a person's own file.
    """
    if model.path.parent != models_dir:
        raise ModelNotFound(f"{model.path} is not in {models_dir}", hint="a file of your own is yours to delete")
    match = _FIRST_PART.fullmatch(model.path.name)
    if match is None:
        return [model.path]
    # The first part last: as long as it is there the model is listed, and an interrupted removal can be done again.
    names = [f"{match['stem']}-{i:05}-of-{match['count']}.gguf" for i in range(int(match["count"]), 0, -1)]
    return [path for name in names if (path := models_dir / name).is_symlink() or path.exists()]


def nbytes_of(path: Path) -> int:
    """Bytes that removing it sets free: none for a link, whose target stays."""
    if path.is_symlink():
        return 0
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.lstat().st_size for file in files if file.is_file() and not file.is_symlink())


def remove(paths: list[Path]) -> None:
    """Remove files, links (not what they lead to) and folders. Raises ModelFileError."""
    try:
        for path in paths:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
                forget_source(path)
    except OSError as error:
        raise ModelFileError(f"cannot delete {error.filename}: {error.strerror}") from error
