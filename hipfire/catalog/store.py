"""The models on this machine: a folder of them, many known to the registry by a tag.

Names come from HTTP clients too, so a name is looked up among the folder's entries and never joined to its path.
Knows nothing of downloads: that is `pull`.
"""

import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

from hipfire.catalog.details import Details, read_details
from hipfire.catalog.hub_name import PREFIX
from hipfire.catalog.registry import Card, Registry
from hipfire.catalog.sources import find_pulled
from hipfire.errors import ModelFileError, ModelNotFound

SUFFIX = ".gguf"

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


@attrs.frozen(kw_only=True)
class InstalledModel:
    """A model that is here: a file, or a folder as Hugging Face has them.

    `tag` is what clients call it: the card's tag, the file's or folder's name, or a whole path.
    """

    tag: str
    path: Path
    card: Card | None = None


@attrs.frozen(kw_only=True)
class Listing:
    """An installed model and what its header says, or why it cannot be used."""

    model: InstalledModel
    details: Details | None
    problem: str | None
    modified_s: int
    """When the file was last changed, in seconds of Unix time."""


class Store:
    """Looks models up by name."""

    def __init__(self, models_dir: Path, registry: Registry) -> None:
        self.models_dir = models_dir
        self.registry = registry
        # A header takes a tenth of a second to read; a file that did not change is not read again.
        self._details: dict[tuple[Path, int, int], Details] = {}

    def resolve(self, name: str, *, allow_paths: bool = True) -> InstalledModel:
        """The model that a tag, an alias, the name of an installed file or, if allowed, a path stands for.

        Raises ModelNotFound; the message says what to pull, or what there is.
        """
        installed = {tag: model for tag, (model, _) in self._installed().items()}
        card = self.registry.find(name)
        wanted = card.tag if card is not None else name.removesuffix(SUFFIX)
        if wanted in installed:
            return installed[wanted]
        for model in installed.values():
            if name in (model.path.name, model.path.name.removesuffix(SUFFIX)):
                return model
        if card is not None:
            raise ModelNotFound(f"{card.tag} is not installed", hint=f"hipfire pull {card.tag}")
        if name.startswith(PREFIX):
            return self._pulled(name, installed)
        if not _is_path(name):
            raise self._unknown(name, installed)
        if not allow_paths:
            raise ModelNotFound(
                f"{name!r} is a path, and requests may not load files by path",
                hint="serve.allow_request_paths = true in config.toml allows it",
            )
        return self._at_path(name, installed)

    def is_elsewhere(self, name: str) -> bool:
        """Whether a name is the path of something that is none of the installed models."""
        try:
            self.resolve(name, allow_paths=False)
        except ModelNotFound:
            return _is_path(name)
        return False

    def list_installed(self) -> list[Listing]:
        """Every model in the folder, by tag; unusable ones too."""
        return [self._listing(model, status) for model, status in self._installed().values()]

    def path_of(self, card: Card) -> Path:
        """Where a card's file belongs."""
        return self.models_dir / card.file

    def _installed(self) -> Mapping[str, tuple[InstalledModel, os.stat_result]]:
        cards = {card.file: card for card in self.registry.cards.values() if card.file}
        models: dict[str, tuple[InstalledModel, os.stat_result]] = {}
        for path, status in _models_in(self.models_dir):
            card = cards.get(path.name)
            if card is not None and not card.is_file(status.st_size):
                # Somebody's own file of that name.
                card = None
            tag = card.tag if card is not None else path.name.removesuffix(SUFFIX)
            models[tag] = InstalledModel(tag=tag, path=path, card=card), status
        return dict(sorted(models.items()))

    def _pulled(self, name: str, installed: Mapping[str, InstalledModel]) -> InstalledModel:
        path = find_pulled(name, self.models_dir)
        for model in installed.values():
            if model.path == path:
                return model
        raise ModelNotFound(f"{name} is not installed", hint=f"hipfire pull {name}")

    def _at_path(self, name: str, installed: Mapping[str, InstalledModel]) -> InstalledModel:
        path = (Path.home() / name[2:] if name.startswith("~/") else Path(name)).absolute()
        for model in installed.values():
            if model.path == path:
                return model
        try:
            path.stat()
        except (OSError, ValueError):
            raise ModelNotFound(f"{name} does not exist", hint="check the path, or see: hipfire list -r") from None
        return InstalledModel(tag=str(path), path=path)

    def _unknown(self, name: str, installed: Mapping[str, InstalledModel]) -> ModelNotFound:
        near = self.registry.nearest(name)
        if near is not None:
            hint = f"did you mean {near}?"
        elif installed:
            hint = "installed: " + ", ".join(installed)
        else:
            hint = "nothing is installed; hipfire list -r shows what can be pulled"
        return ModelNotFound(f"there is no model {name!r}", hint=hint)

    def _listing(self, model: InstalledModel, status: os.stat_result) -> Listing:
        key = (model.path, status.st_size, status.st_mtime_ns)
        problem = None
        try:
            if key not in self._details:
                self._details[key] = read_details(model.path)
        except (ModelFileError, ModelNotFound) as error:
            problem = error.message
        return Listing(model=model, details=self._details.get(key), problem=problem, modified_s=int(status.st_mtime))


def _is_path(name: str) -> bool:
    return ("/" in name or name.endswith(SUFFIX)) and not name.startswith(PREFIX)


def _models_in(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The folder's models, of a split one the first part only. A folder that is not there has none."""
    for path in sorted(folder.glob("*")):
        try:
            status = path.stat()
        except OSError:
            # A link to nothing, or a file that was removed just now.
            continue
        if _is_model(path, status):
            yield path, status


def _is_model(path: Path, status: os.stat_result) -> bool:
    if path.name.startswith("."):
        return False
    if stat.S_ISDIR(status.st_mode):
        return (path / "config.json").is_file()
    return stat.S_ISREG(status.st_mode) and path.suffix == SUFFIX and not _LATER_PART.search(path.name)
