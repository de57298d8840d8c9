"""What `config list` and `config explain` show: a table of settings, and the ladder of one setting's sources.

Knows no files: it is handed the layers.
"""

import json
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

import attrs
import click

from hipfire.config.environment import Environment
from hipfire.config.layers import Layers
from hipfire.config.schema import ALIASES, NO_PROFILE, SETTINGS, Origin, Setting, Sourced
from hipfire.config.values import allowed, shown

_SOURCES = MappingProxyType(
    {
        Origin.FLAG: "flag",
        Origin.ENVIRONMENT: "environment",
        Origin.MODEL: "models.toml",
        Origin.PROFILE: "profile",
        Origin.GLOBAL: "config.toml",
        Origin.CARD: "model's card",
        Origin.MODEL_FILE: "model's file",
        Origin.BUILTIN: "built-in",
    }
)
_OF_MODELS = (Origin.MODEL, Origin.CARD, Origin.MODEL_FILE)

_MOST_SHOWN = 40


@attrs.frozen(kw_only=True)
class View:
    """The settings as they are looked at. `model` is the one that is asked about, None for those of every model."""

    layers: Layers
    environment: Environment
    model: str | None

    def keys(self) -> list[str]:
        """The keys that there is something to say about."""
        return [key for key, setting in SETTINGS.items() if self.model is None or setting.per_model]

    def list_text(self) -> str:
        """A line for each setting: key, value, source."""
        settings = self.layers.settings()
        rows = []
        for key in self.keys():
            sourced = settings.sourced(key)
            is_built_in = sourced.source.origin is Origin.BUILTIN
            place = click.style(sourced.source.place, dim=True) if is_built_in else sourced.source.place
            rows.append((key, _short(shown(SETTINGS[key], sourced.value)) or "–", place))
        return "\n".join(aligned([("key", "value", "source"), *rows]))

    def list_json(self) -> str:
        settings = self.layers.settings()
        return json.dumps([_document(SETTINGS[key], settings.sourced(key)) for key in self.keys()], indent=2)

    def explain_text(self, key: str) -> str:
        """What a setting is, and what each source says of it, the one that wins marked."""
        setting = SETTINGS[key]
        candidates = self.layers.candidates(key)
        winner = next(iter(candidates.values()))
        place = "built-in" if winner.source.origin is Origin.BUILTIN else f"from {winner.source.place}"
        names = [f"environment {setting.env}"]
        names += [f"also called {alias}" for alias, aliased in ALIASES.items() if aliased == key]
        rows = []
        for origin, source in _SOURCES.items():
            sourced = candidates.get(origin)
            if sourced is None:
                rows.append((source, "–", self._why_not(setting, origin), ""))
            else:
                where = "" if origin is Origin.BUILTIN else sourced.source.place
                rows.append((source, _short(shown(setting, sourced.value)) or "–", where, _mark(sourced is winner)))
        head = click.style(f"{key} = {shown(setting, winner.value) or '(not set)'}", bold=True)
        lines = [
            f"{head}   {place}",
            setting.doc,
            f"{_capital(allowed(setting))}; {', '.join(names)}.",
            "",
            *(f"  {line}" for line in aligned(rows)),
        ]
        return "\n".join(lines)

    def explain_json(self, key: str) -> str:
        setting = SETTINGS[key]
        winner, *others = self.layers.candidates(key).values()
        document = {
            **_document(setting, winner),
            "shadows": [_document(setting, other) for other in others],
            "default": _public(setting, setting.default),
            "allowed": allowed(setting),
            "environment": setting.env,
            "per_model": setting.per_model,
            "about": setting.doc,
        }
        return json.dumps(document, indent=2)

    def _why_not(self, setting: Setting, origin: Origin) -> str:
        """Why a source says nothing."""
        if origin in _OF_MODELS:
            if not setting.per_model:
                return "the same for every model"
            return "" if self.model is not None else f"hipfire config MODEL explain {setting.key}"
        if origin is Origin.ENVIRONMENT:
            return f"{setting.env} is not set"
        if origin is Origin.PROFILE:
            chosen = self.layers.settings().config.profile
            return "none is chosen" if chosen == NO_PROFILE else f"not in {chosen}"
        if origin is Origin.GLOBAL:
            path = self.environment.config_file
            return f"not in {path}" if path.exists() else f"there is no {path}"
        return ""


def _mark(wins: bool) -> str:
    return click.style("in force", fg="green") if wins else click.style("shadowed", dim=True)


def _document(setting: Setting, sourced: Sourced[Any]) -> dict[str, object]:
    source = sourced.source
    return {
        "key": setting.key,
        "value": _public(setting, sourced.value),
        "source": _SOURCES[source.origin],
        "place": None if source.origin is Origin.BUILTIN else source.place,
    }


def _public(setting: Setting, value: object) -> object:
    return shown(setting, value) if setting.secret and value else value


def _short(text: str) -> str:
    line = " ".join(text.split("\n"))
    return line if len(line) <= _MOST_SHOWN else line[: _MOST_SHOWN - 1] + "…"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def aligned(rows: Iterable[tuple[str, ...]]) -> list[str]:
    """The rows with their columns below each other; a style may only be in the last."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)][:-1]
    return [
        "  ".join([*(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]
