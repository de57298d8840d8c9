"""Reads what each source says of the settings, and lays the sources over each other. `Origin` has their order.

What a model's card, its file and its table in models.toml say joins in when it is known which model: see
`Settings.with_layer`. Knows which names are settings and nothing of what they are for.
"""

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from hipfire.config.environment import Environment
from hipfire.config.schema import (
    ALIASES,
    BUILTIN,
    NO_PROFILE,
    SETTINGS,
    Layer,
    Origin,
    Setting,
    Settings,
    Source,
    Sourced,
    key_of,
)
from hipfire.config.toml_file import Entry, read_entries
from hipfire.config.values import BadValue, check, parse
from hipfire.errors import ConfigError

Flag = tuple[str, str, str]
"""A flag that was given: the key, the text and the flag's own name, as in ("serve.port", "80", "--port")."""

_PROFILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


@attrs.frozen
class Layers:
    """What each source says, by its origin. Built-in values are not among them."""

    by_origin: Mapping[Origin, Layer]

    def settings(self) -> Settings:
        """The settings in force."""
        settings = Settings()
        for layer in self.by_origin.values():
            settings = settings.with_layer(layer)
        return settings

    def candidates(self, key: str) -> Mapping[Origin, Sourced[Any]]:
        """Every value that is given for a key, the built-in one too, the one in force first."""
        given = {origin: layer[key] for origin, layer in self.by_origin.items() if key in layer}
        given[Origin.BUILTIN] = Sourced(SETTINGS[key].default, BUILTIN)
        return dict(sorted(given.items(), reverse=True))

    def with_layer(self, layer: Layer) -> "Layers":
        """And another one. Its values are of one origin, which has none yet."""
        origins = {value.source.origin for value in layer.values()}
        return Layers({**self.by_origin, **dict.fromkeys(origins, layer)})


def resolve(environment: Environment, *, flags: Iterable[Flag] = ()) -> Settings:
    """The settings in force. A file that is not there sets nothing.

    Raises ConfigError, which names the place and, for an unknown key, the nearest one.
    """
    return read_layers(environment, flags=flags).settings()


def read_layers(environment: Environment, *, flags: Iterable[Flag] = ()) -> Layers:
    """The layers that hold for every model. Raises ConfigError."""
    layers = Layers(
        {
            Origin.GLOBAL: read_layer(environment.config_file, Origin.GLOBAL),
            Origin.ENVIRONMENT: _from_environment(environment.variables),
            Origin.FLAG: {key: parsed(key, text, Source(Origin.FLAG, flag)) for key, text, flag in flags},
        }
    )
    profile = layers.settings().sourced("profile")
    if profile.value == NO_PROFILE:
        return layers
    return layers.with_layer(_from_profile(environment, profile))


def read_layer(path: Path, origin: Origin) -> Layer:
    """A file of settings. Raises ConfigError."""
    layer: dict[str, Sourced[Any]] = {}
    for entry in read_entries(path):
        key = entry_key(entry)
        if key in layer:
            raise ConfigError(f"{entry.place}: {key} is set a second time", hint=f"first at {layer[key].source.place}")
        layer[key] = checked(key, entry.value, Source(origin, entry.place))
    return layer


def profile_path(environment: Environment, name: str) -> Path:
    """The file of a profile, which need not be there. Raises ConfigError for what can be no profile's name."""
    if not _PROFILE_NAME.fullmatch(name) or name == NO_PROFILE:
        raise ConfigError(f"{name!r} is no name for a profile", hint=f"letters, digits, - and _, and not {NO_PROFILE}")
    return environment.profiles_dir / f"{name}.toml"


def profile_names(environment: Environment) -> list[str]:
    """The profiles that are there."""
    paths = sorted(environment.profiles_dir.glob("*.toml"))
    return [path.stem for path in paths if _PROFILE_NAME.fullmatch(path.stem) and path.stem != NO_PROFILE]


def read_profile(environment: Environment, name: str) -> Layer:
    """What a profile says. Raises ConfigError, also where there is none of that name."""
    path = profile_path(environment, name)
    if not path.exists():
        raise unknown_profile(environment, name)
    layer = read_layer(path, Origin.PROFILE)
    if (chosen := layer.get("profile")) is not None:
        raise ConfigError(f"{chosen.source.place}: a profile cannot name a profile")
    return layer


def unknown_profile(environment: Environment, name: str) -> ConfigError:
    """The error that there is no such profile."""
    known = profile_names(environment)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}" if known else "there are none"
    return ConfigError(f"there is no profile {name}", hint=hint)


def _from_profile(environment: Environment, chosen: Sourced[str]) -> Layer:
    try:
        return read_profile(environment, chosen.value)
    except ConfigError as error:
        if profile_is_there(environment, chosen.value):
            raise
        raise ConfigError(f"{chosen.source.place}: {error.message}", hint=error.hint) from None


def profile_is_there(environment: Environment, name: str) -> bool:
    return name in profile_names(environment)


def _from_environment(variables: Mapping[str, str]) -> Layer:
    return {
        key: parsed(key, variables[setting.env], Source(Origin.ENVIRONMENT, setting.env))
        for key, setting in SETTINGS.items()
        if variables.get(setting.env)
    }


def entry_key(entry: Entry) -> str:
    """The key of the setting that a file's entry is of. Raises ConfigError."""
    name = ".".join(entry.path)
    key = key_of(name)
    if key is None:
        raise ConfigError(f"{entry.place}: there is no setting {name}", hint=nearest(name))
    return key


def nearest(name: str) -> str:
    """What somebody who wrote `name` may have meant, as a hint."""
    if any(key.startswith(f"{name}.") for key in SETTINGS):
        return f"a table: [{name}]"
    near = nearest_key(name)
    return f"did you mean {near}?" if near else "known are: " + ", ".join(SETTINGS)


def nearest_key(name: str) -> str | None:
    """The key that somebody who wrote `name` may have meant."""
    # `sampling.temperature` is most likely `generation.temperature`, however different the two look as strings.
    end = name.rsplit(".", maxsplit=1)[-1]
    known = {**{key: key for key in SETTINGS}, **ALIASES}
    near = [end] if end in known else difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    near = near or difflib.get_close_matches(end, known, n=1, cutoff=0.7)
    return known[near[0]] if near else None


def checked(key: str, value: object, source: Source) -> Sourced[Any]:
    """A value that came with a type. Raises ConfigError, which names its place."""
    return _sourced(check, SETTINGS[key], value, source)


def parsed(key: str, text: str, source: Source) -> Sourced[Any]:
    """A value that came as text. Raises ConfigError, which names its place."""
    return _sourced(parse, SETTINGS[key], text, source)


def _sourced(read: Any, setting: Setting, given: object, source: Source) -> Sourced[Any]:
    try:
        return Sourced(read(setting, given), source)
    except BadValue as error:
        raise ConfigError(f"{source.place}: {setting.key} {error}") from None
