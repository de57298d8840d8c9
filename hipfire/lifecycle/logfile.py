"""The log of a detached serve: what it and its engine write to stdout and stderr. Knows nothing of what they write.

Several processes write to the file by descriptors of their own, so it cannot be rotated by renaming it under them: its
content is copied to `serve.log.1` and the file emptied. All append, so they go on at its beginning.
"""

import contextlib
import os
import shutil
from pathlib import Path

MAX_NBYTES = 10 << 20

_TAIL_NBYTES = 64 << 10


def open_log(path: Path) -> int:
    """A descriptor that appends to the log. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Prompts do not go into the log, names of models and addresses of clients do.
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)


def rotate(path: Path, *, max_nbytes: int = MAX_NBYTES) -> None:
    """Keep the log below a size: what is in a larger one becomes the previous log, and the one before that goes.

    Does nothing where there is no log, or where it cannot be written.
    """
    with contextlib.suppress(OSError):
        if path.stat().st_size > max_nbytes:
            with contextlib.suppress(OSError):
                # Fails on a full disk, where emptying the log is all the more needed.
                shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            os.truncate(path, 0)


def tail(path: Path, *, start: int, n_lines: int) -> list[str]:
    """The last lines of what the log got since it was `start` bytes long."""
    try:
        with path.open("rb") as file:
            nbytes = file.seek(0, os.SEEK_END)
            begin = start if start <= nbytes else 0
            file.seek(max(begin, nbytes - _TAIL_NBYTES))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return []
    return lines[-n_lines:]
