"""Reads the layers of the configuration and lays them over each other: flag > HIPFIRE_* > config.toml > built-in.

A model's card comes between config.toml and built-in, once it is known which model: see `with_card`. Knows which
names are settings and nothing of what they are for.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hipfire.config.schema import SETTINGS, Origin, Setting, Settings, Source, Sourced
from hipfire.config.values import BadValue, check, parse
from hipfire.errors import ConfigError


def resolve(*, flags: Iterable[tuple[str, str, str]], variables: Mapping[str, str], config_file: Path) -> Settings:
    """The settings in force. A config file that is not there sets nothing.

    `flags` has the key, the text and the flag's own name of each flag that was given: ("serve.port", "80", "--port").
    Raises ConfigError, which names the place and, for an unknown key, the nearest one.
    """
    values = _from_file(config_file)
    values |= _from_environment(variables)
    for key, text, flag in flags:
        values[key] = _parsed(SETTINGS[key], text, Source(Origin.FLAG, flag))
    return Settings().replaced(values)


def with_card(settings: Settings, recommended: Mapping[str, object], *, tag: str) -> Settings:
    """The settings with a model card's recommendations in place of built-in values, and of those only."""
    source = Source(Origin.CARD, f"the card of {tag}")
    values = {key: _checked(SETTINGS[key], value, source) for key, value in recommended.items()}
    return settings.replaced(
        {key: value for key, value in values.items() if settings.sourced(key).source.origin < Origin.CARD}
    )


def _from_environment(variables: Mapping[str, str]) -> dict[str, Sourced[Any]]:
    return {
        key: _parsed(setting, variables[setting.env], Source(Origin.ENVIRONMENT, setting.env))
        for key, setting in SETTINGS.items()
        if variables.get(setting.env)
    }


def _from_file(path: Path) -> dict[str, Sourced[Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: {error}") from error
    found: dict[str, Sourced[Any]] = {}
    for key, value in _flattened(document):
        place = f"{path}:{_line_of(text, key)}"
        if key not in SETTINGS:
            raise ConfigError(f"{place}: there is no setting {key}", hint=_nearest(key))
        found[key] = _checked(SETTINGS[key], value, Source(Origin.FILE, place))
    return found


def _flattened(document: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    """The document's values by their dotted keys."""
    for name, value in document.items():
        if isinstance(value, dict):
            for inner, inner_value in _flattened(value):
                yield f"{name}.{inner}", inner_value
        else:
            yield name, value


_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ASSIGNMENT = re.compile(r"\s*([\w\"'.\- ]+?)\s*=")


def _line_of(text: str, key: str) -> int:
    """The line, from 1, where a valid TOML text sets a key; 1 where it is written in a way not looked for here."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = header[1] + "."
        elif assignment := _ASSIGNMENT.match(line):
            # An inline table sets every key below its own name.
            name = re.sub(r"[\"' ]", "", table + assignment[1])
            if key == name or key.startswith(name + "."):
                return number
    return 1


def _nearest(key: str) -> str:
    # A bare `port` is most likely `serve.port`, however different the two look as strings.
    ends = [known for known in SETTINGS if known.split(".")[-1] == key.rsplit(".", maxsplit=1)[-1]]
    near = ends or difflib.get_close_matches(key, SETTINGS, n=1, cutoff=0.5)
    return f"did you mean {near[0]}?" if near else "known are: " + ", ".join(SETTINGS)


def _checked(setting: Setting, value: object, source: Source) -> Sourced[Any]:
    try:
        return Sourced(check(setting, value), source)
    except BadValue as error:
        raise ConfigError(f"{source.place}: {setting.key} {error}") from None


def _parsed(setting: Setting, text: str, source: Source) -> Sourced[Any]:
    try:
        return Sourced(parse(setting, text), source)
    except BadValue as error:
        raise ConfigError(f"{source.place}: {setting.key} {error}") from None
