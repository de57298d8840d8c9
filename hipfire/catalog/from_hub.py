"""A model from the Hugging Face Hub: all its files, each checked before it counts.

What was interrupted goes on, as long as the hub still has the same content. Importing this takes a third of a second.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath

import attrs

from hipfire.catalog.hub import Hub, RemoteFile, check_content
from hipfire.catalog.hub_name import HubName, choose_files, quant_of
from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.registry import Card, HubSource, check_architecture
from hipfire.errors import DownloadError


def find_card(name: HubName, variables: Mapping[str, str]) -> Card:
    """What the hub tells of the model that a name stands for, as a card.

    Raises DownloadError, and UnsupportedFile where this build could not run it.
    """
    repository = Hub(variables).look_up(name.repo, name.revision)
    files = choose_files(name, repository.files)
    if repository.architecture is not None:
        check_architecture(repository.architecture, of=str(name))
    file = PurePosixPath(files[0].path).name
    return Card(
        tag=str(name),
        aliases=(),
        about="",
        license=repository.license,
        architecture=repository.architecture or "",
        file=file,
        nbytes=sum(file.nbytes or 0 for file in files),
        quant=quant_of(file),
        context_length=repository.context_length,
        settings={},
        hub=HubSource(repo=name.repo, revision=repository.commit, files=files),
    )


@attrs.frozen(kw_only=True)
class HubDownload:
    """One attempt, in a folder of its own (`scratch`). `files` is what the hub has now."""

    hub: Hub
    repo: str
    files: tuple[RemoteFile, ...]
    scratch: Path
    models_dir: Path
    on_progress: OnProgress

    @classmethod
    def begin(
        cls,
        source: HubSource,
        *,
        scratch: Path,
        models_dir: Path,
        variables: Mapping[str, str],
        on_progress: OnProgress,
    ) -> "HubDownload":
        """Ask the hub what it has, and remove what an earlier attempt has left of something else."""
        hub = Hub(variables)
        files = tuple(hub.describe(source.repo, source.revision, file) for file in source.files)
        download = cls(
            hub=hub, repo=source.repo, files=files, scratch=scratch, models_dir=models_dir, on_progress=on_progress
        )
        mine = {path.name for file in files for path in (download._whole(file), download._partial(file))}
        for path in scratch.glob("hub-*"):
            if path.name not in mine:
                path.unlink()
        return download

    def needed_nbytes(self) -> int:
        """Bytes that it may yet take in the scratch folder."""
        return sum(file.nbytes - self._here(file) for file in self.files)

    def bring(self) -> dict[str, Path]:
        """The model's files by their names, checked; less those that are in place. Raises DownloadError, OSError."""
        total = sum(file.nbytes for file in self.files)
        before = 0
        for file in self.files:

            def on_bytes(nbytes: int, before: int = before) -> None:
                self.on_progress(Phase.DOWNLOAD, before + nbytes, total)

            def on_checked(nbytes: int, before: int = before) -> None:
                self.on_progress(Phase.CHECK, before + nbytes, total)

            if not self._is_placed(file) and not self._whole(file).exists():
                partial = self._partial(file)
                self.hub.fetch(self.repo, file, partial, on_bytes)
                check_content(file, partial, on_checked)
                partial.replace(self._whole(file))
            before += file.nbytes
        return {_name(file): self._whole(file) for file in self.files if not self._is_placed(file)}

    def _is_placed(self, file: RemoteFile) -> bool:
        """Whether an attempt that was interrupted at the very end has put it in place. Raises DownloadError."""
        path = self.models_dir / _name(file)
        if path.exists() and path.stat().st_size != file.nbytes:
            raise DownloadError(f"{path} is in the way: it is not {file.path} of {self.repo}", hint="move it elsewhere")
        return path.exists()

    def _here(self, file: RemoteFile) -> int:
        if self._is_placed(file) or self._whole(file).exists():
            return file.nbytes
        partial = self._partial(file)
        return min(partial.stat().st_size, file.nbytes) if partial.exists() else 0

    def _whole(self, file: RemoteFile) -> Path:
        return self.scratch / f"hub-{file.sha256}"

    def _partial(self, file: RemoteFile) -> Path:
        return self.scratch / f"hub-{file.sha256}.partial"


def _name(file: RemoteFile) -> str:
    """Its name here, where there are no folders."""
    return PurePosixPath(file.path).name
