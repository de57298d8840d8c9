"""The models on this machine: a folder of them, many known to the registry by a tag.

Names come from HTTP clients too, so a name is looked up among the folder's entries and those of models.toml, and never
joined to a path. Knows nothing of downloads: that is `pull`.
"""

import difflib
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import attrs

from hipfire.catalog.details import Details, read_details
from hipfire.catalog.hub_name import PREFIX
from hipfire.catalog.registry import Card, Registry, load_registry
from hipfire.catalog.sources import find_pulled
from hipfire.config.environment import Environment
from hipfire.config.own_models import NO_OWN_MODELS, OwnModel, expanded, read_own_models
from hipfire.errors import ConfigError, ModelFileError, ModelNotFound

SUFFIX = ".gguf"
_SHOWN = 200
"""Characters of a name that an error repeats."""

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf$")


@attrs.frozen(kw_only=True)
class InstalledModel:
    """A model that is here: a file, or a folder as Hugging Face has them.

    `tag` is what clients call it: the card's tag, the file's or folder's name, the name that models.toml has for it,
    or a whole path. `own` is what else models.toml says of it.
    """

    tag: str
    path: Path
    card: Card | None = None
    own: OwnModel | None = None

    @property
    def aliases(self) -> tuple[str, ...]:
        """What else it is called, by its card and by models.toml."""
        of_card = self.card.aliases if self.card is not None else ()
        return (*of_card, *self.own.aliases) if self.own is not None else of_card


@attrs.frozen(kw_only=True)
class Listing:
    """An installed model and what its header says, or why it cannot be used."""

    model: InstalledModel
    details: Details | None
    problem: str | None
    modified_s: int
    """When the file was last changed, in seconds of Unix time; 0 for one that is not there."""


class Store:
    """Looks models up by name. Raises ConfigError where two of `own_models` are one model."""

    def __init__(
        self, models_dir: Path, registry: Registry, own_models: Mapping[str, OwnModel] = NO_OWN_MODELS
    ) -> None:
        self.models_dir = models_dir
        self.registry = registry
        self._own_models = own_models
        self._own_by_tag = self._by_tag(own_models.values())
        # A header takes a tenth of a second to read; a file that did not change is not read again.
        self._details: dict[tuple[Path, int, int], Details] = {}

    def resolve(self, name: str, *, allow_paths: bool = True) -> InstalledModel:
        """The model that a tag, an alias, the name of an installed file or, if allowed, a path stands for.

        A path that models.toml names is always allowed. Raises ModelNotFound; the message says what to pull, or what
        there is.
        """
        own = self._own(name)
        if own is not None and own.path is not None:
            return self._elsewhere(own)
        if own is not None:
            name, allow_paths = own.name, True
        model = self._resolve(name, allow_paths=allow_paths)
        return attrs.evolve(model, own=self._own_by_tag.get(model.tag))

    def card_of(self, name: str) -> Card | None:
        """The registry's card by which a model of this name could be pulled; none for one that is elsewhere."""
        own = self._own(name)
        if own is not None and own.path is not None:
            return None
        return self.registry.find(own.name if own is not None else name)

    def own_strangers(self) -> list[OwnModel]:
        """What models.toml has a table for, and neither the models folder nor the registry nor the disk has."""
        strangers = []
        for own in self._own_models.values():
            try:
                self.resolve_or_expect(own.name)
            except ModelNotFound:
                # One whose path is wrong is listed.
                if own.path is None:
                    strangers.append(own)
        return strangers

    def resolve_or_expect(self, name: str) -> InstalledModel:
        """Like `resolve`, but a model that could be pulled counts too: its path is where it would be."""
        try:
            return self.resolve(name)
        except ModelNotFound:
            card = self.card_of(name)
            if card is None:
                raise
            return InstalledModel(tag=card.tag, path=self.path_of(card), card=card, own=self._own_by_tag.get(card.tag))

    def _own(self, name: str) -> OwnModel | None:
        """What models.toml calls by this name."""
        if name in self._own_models:
            return self._own_models[name]
        return next((model for model in self._own_models.values() if name in model.aliases), None)

    def _tag_of(self, name: str) -> str:
        card = self.registry.find(name)
        if card is not None:
            return card.tag
        return str(expanded(name).absolute()) if _is_path(name) and "/" in name else name.removesuffix(SUFFIX)

    def _by_tag(self, models: Iterable[OwnModel]) -> Mapping[str, OwnModel]:
        found: dict[str, OwnModel] = {}
        for model in models:
            tag = model.name if model.path is not None else self._tag_of(model.name)
            other = found.setdefault(tag, model)
            if other is not model:
                raise ConfigError(f"{model.place}: {model.name} is the same model as {other.name}", hint="join them")
        return found

    def _elsewhere(self, own: OwnModel) -> InstalledModel:
        """A model with a path of its own."""
        assert own.path is not None
        if not own.path.exists():
            raise ModelNotFound(
                f"{own.name} is not at {own.path}", hint=f"correct it at {own.place}, or take the entry out there"
            )
        return self._own_installed(own, own.path)

    def _own_installed(self, own: OwnModel, path: Path) -> InstalledModel:
        return InstalledModel(tag=own.name, path=path, card=self.registry.find(own.name), own=own)

    def _resolve(self, name: str, *, allow_paths: bool) -> InstalledModel:
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
        # A request learns nothing of the files beside the server.
        if not _is_path(name) and not (allow_paths and _is_file(name)):
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
            return _is_path(name) or _is_file(name)
        return False

    def list_installed(self) -> list[Listing]:
        """Every model in the folder or with a path in models.toml, by tag; unusable ones too."""
        found = {
            tag: self._listing(attrs.evolve(model, own=self._own_by_tag.get(tag)), status)
            for tag, (model, status) in self._installed().items()
        }
        for own in self._own_models.values():
            if own.path is not None:
                found[own.name] = self._listing_elsewhere(own, own.path)
        return [found[tag] for tag in sorted(found)]

    def _listing_elsewhere(self, own: OwnModel, path: Path) -> Listing:
        model = self._own_installed(own, path)
        try:
            return self._listing(model, path.stat())
        except OSError as error:
            return Listing(model=model, details=None, problem=f"{path}: {error.strerror}", modified_s=0)

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
        path = expanded(name).absolute()
        for model in installed.values():
            if model.path == path:
                return model
        try:
            path.stat()
        except (OSError, ValueError):
            raise ModelNotFound(
                f"{name} does not exist", hint="check the path; hipfire list shows what is here"
            ) from None
        return InstalledModel(tag=str(path), path=path)

    def _unknown(self, name: str, installed: Mapping[str, InstalledModel]) -> ModelNotFound:
        names = [own for model in self._own_models.values() for own in (model.name, *model.aliases)]
        near = next(iter(difflib.get_close_matches(name, [*names, *installed], n=1)), None)
        near = near or self.registry.nearest(name)
        if near is not None:
            hint = f"did you mean {near}?"
        elif installed:
            hint = "installed: " + ", ".join(installed)
        else:
            hint = "nothing is installed; hipfire list -r shows what can be pulled"
        return ModelNotFound(f"there is no model {name[:_SHOWN]!r}", hint=hint)

    def _listing(self, model: InstalledModel, status: os.stat_result) -> Listing:
        key = (model.path, status.st_size, status.st_mtime_ns)
        problem = None
        try:
            if key not in self._details:
                self._details[key] = read_details(model.path)
        except (ModelFileError, ModelNotFound) as error:
            problem = error.message
        return Listing(model=model, details=self._details.get(key), problem=problem, modified_s=int(status.st_mtime))


def open_store(environment: Environment) -> Store:
    """The store of this machine. Raises ConfigError for what is wrong in models.toml."""
    return Store(environment.models_dir, load_registry(), read_own_models(environment.models_file))


def _is_path(name: str) -> bool:
    return ("/" in name or name.endswith(SUFFIX)) and not name.startswith(PREFIX)


def _is_file(name: str) -> bool:
    try:
        return Path(name).is_file()
    except OSError:
        # A name may be longer than any file's.
        return False


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
