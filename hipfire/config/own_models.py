"""models.toml: what a person calls models, where else they are, and settings for one model alone.

A table for each model, by its tag, by its path, or, with a `path` of its own, by any name:

    [model."smollm2:135m"]
    aliases = ["small"]
    generation.temperature = 0.7

    [model.writer]
    path = "~/models/writer-7b.gguf"

Knows no registry and no models folder: `catalog.store` finds out which model a table is of.
"""

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import attrs

from hipfire.config.layers import checked, entry_key
from hipfire.config.schema import SETTINGS, Layer, Origin, Source, Sourced
from hipfire.config.toml_file import Entry, read_entries
from hipfire.errors import ConfigError

TABLE = "model"
PATH, ALIASES = "path", "aliases"


@attrs.frozen(kw_only=True)
class OwnModel:
    """One table. `place` is the line of the first thing in it; `settings` are of Origin.MODEL."""

    name: str
    place: str
    path: Path | None = None
    aliases: tuple[str, ...] = ()
    settings: Layer = attrs.field(factory=dict)


NO_OWN_MODELS: Mapping[str, OwnModel] = MappingProxyType({})


def read_own_models(path: Path) -> Mapping[str, OwnModel]:
    """The tables of models.toml by name; none where there is no file. Raises ConfigError."""
    tables: dict[str, list[Entry]] = {}
    for entry in read_entries(path):
        top, *rest = entry.path
        if top != TABLE or len(rest) < 2:
            raise ConfigError(f"{entry.place}: {'.'.join(entry.path)} is in no model's table", hint=_how_to(top))
        tables.setdefault(rest[0], []).append(attrs.evolve(entry, path=tuple(rest[1:])))
    models = {name: _model(name, entries, path.parent) for name, entries in tables.items()}
    _refuse_names_for_two(models)
    return models


def _how_to(top: str) -> str:
    near = top != TABLE and difflib.get_close_matches(top, [TABLE], n=1)
    return f"did you mean [{TABLE}.…]?" if near else f'a table begins with its model: [{TABLE}."TAG"]'


def _model(name: str, entries: Sequence[Entry], folder: Path) -> OwnModel:
    model = OwnModel(name=name, place=entries[0].place)
    settings: dict[str, Sourced[Any]] = {}
    for entry in entries:
        match entry.path:
            case ("path",):
                model = attrs.evolve(model, path=_path(entry, folder))
            case ("aliases",):
                model = attrs.evolve(model, aliases=_aliases(entry))
            case _:
                key = _model_key(name, entry)
                settings[key] = checked(key, entry.value, Source(Origin.MODEL, entry.place))
    return attrs.evolve(model, settings=settings)


def _path(entry: Entry, folder: Path) -> Path:
    if not isinstance(entry.value, str) or not entry.value or "\0" in entry.value:
        raise ConfigError(f"{entry.place}: {PATH} must be the path of a model, not {entry.value!r}")
    return folder / expanded(entry.value)


def expanded(text: str) -> Path:
    """A path as a person writes it: ~ is the home folder."""
    return Path.home() / text[2:] if text.startswith("~/") else Path(text)


def _aliases(entry: Entry) -> tuple[str, ...]:
    value = entry.value
    if not isinstance(value, list) or not all(isinstance(alias, str) and alias for alias in value):
        raise ConfigError(f"{entry.place}: {ALIASES} must be a list of names, not {value!r}")
    return tuple(value)


def _model_key(name: str, entry: Entry) -> str:
    try:
        key = entry_key(entry)
    except ConfigError as error:
        if len(entry.path) > 2:
            raise ConfigError(error.message, hint=f'quote a name with dots or colons: [{TABLE}."qwen3.5:9b"]') from None
        near = difflib.get_close_matches(entry.path[0], [PATH, ALIASES], n=1, cutoff=0.7)
        raise ConfigError(error.message, hint=f"did you mean {near[0]}?" if near else error.hint) from None
    if not SETTINGS[key].per_model:
        raise ConfigError(
            f"{entry.place}: {key} is the same for every model", hint=f"set it in config.toml, not for {name}"
        )
    return key


def _refuse_names_for_two(models: Mapping[str, OwnModel]) -> None:
    meant: dict[str, OwnModel] = dict(models)
    for model in models.values():
        for alias in model.aliases:
            other = meant.setdefault(alias, model)
            if other is not model:
                raise ConfigError(f"{model.place}: the alias {alias} of {model.name} also stands for {other.name}")
