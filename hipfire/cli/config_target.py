"""Which file and table a change of settings goes to, and the change itself: `config set` and `reset` share it."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import click
from click.shell_completion import CompletionItem
from tomlkit import TOMLDocument

from hipfire.config.edit import change_file, remove_from, set_in
from hipfire.config.environment import Environment
from hipfire.config.layers import nearest_key, profile_names, profile_path, unknown_profile
from hipfire.config.own_models import ALIASES, PATH, TABLE
from hipfire.config.schema import ALIASES as KEY_ALIASES
from hipfire.config.schema import SETTINGS, key_of
from hipfire.config.toml_file import Entry, KeyPath
from hipfire.config.values import AUTO, BadValue, parse
from hipfire.errors import ConfigError

if TYPE_CHECKING:
    from hipfire.catalog.store import InstalledModel


class KeyType(click.ParamType[str]):
    """A setting's key, or the last part of one. Converts to the key."""

    name = "key"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        del param
        key = key_of(value)
        if key is None:
            near = nearest_key(value)
            hint = f"did you mean {near}?" if near else "hipfire config list shows them all"
            raise click.UsageError(f"there is no setting {value!r}, {hint}", ctx)
        return key

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        names = {**{key: key for key in SETTINGS}, **KEY_ALIASES}
        return [
            CompletionItem(name, help=SETTINGS[key].doc) for name, key in names.items() if name.startswith(incomplete)
        ]


def complete_value(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The values that a setting may be chosen from, once its key is there."""
    del param
    setting = SETTINGS.get(key_of(ctx.params.get("key") or "") or "")
    if setting is None:
        return []
    choices = ("true", "false") if setting.type is bool else setting.choices
    return [choice for choice in choices if choice.startswith(incomplete)]


def complete_profile(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The profiles that are there."""
    del param
    return [name for name in profile_names(ctx.obj) if name.startswith(incomplete)]


@attrs.frozen(kw_only=True)
class Target:
    """A table of a file: the whole of config.toml or of a profile, or a model's table in models.toml.

    `model` is set for the last.
    """

    path: Path
    table: KeyPath = ()
    model: str | None = None

    @property
    def name(self) -> str:
        """The file and, in models.toml, the table."""
        return f'[{TABLE}."{self.table[1]}"] of {self.path}' if self.table else str(self.path)

    def set(self, values: Mapping[str, object]) -> None:
        """Set settings by key. Raises ConfigError."""

        def change(entries: Sequence[Entry], document: TOMLDocument) -> None:
            for key, value in values.items():
                places = self._places(entries, key)
                # Set twice it is an error; this is the way to end it.
                remove_from(document, places[1:])
                set_in(document, places[0] if places else (*self.table, *key.split(".")), _as_toml(value))

        change_file(self.path, change)

    def reset(self, name: str | None) -> list[str]:
        """Remove a setting, or all with None; what is no setting but stands there goes by its name too.

        Returns what was removed. Raises ConfigError.
        """
        removed: list[str] = []

        def change(entries: Sequence[Entry], document: TOMLDocument) -> None:
            own = [entry.path for entry in entries if self._is_setting(entry.path)]
            paths = own if name is None else self._places(entries, name)
            removed.extend(".".join(path[len(self.table) :]) for path in paths)
            remove_from(document, paths)

        if self.path.exists():
            change_file(self.path, change)
        return removed

    def _places(self, entries: Iterable[Entry], name: str) -> list[KeyPath]:
        """Where a setting is set: by its key, by the last part of it, or by a name that is no setting's."""
        found = []
        for entry in entries:
            written = ".".join(entry.path[len(self.table) :])
            key = key_of(written)
            # What is no setting's may go by its last part too, as settings do.
            names = {written, entry.path[-1] if key is None else key}
            if self._is_setting(entry.path) and name in names:
                found.append(entry.path)
        return found

    def _is_setting(self, path: KeyPath) -> bool:
        inner = path[len(self.table) :]
        return path[: len(self.table)] == self.table and not (self.table and inner in {(PATH,), (ALIASES,)})


def target_of(environment: Environment, model: "InstalledModel | None", profile: str | None) -> Target:
    """Where a change goes. Raises click.UsageError, and ConfigError for a profile that is not there."""
    if model is not None:
        if profile is not None:
            raise click.UsageError("a setting is one model's or a profile's, not both")
        name = model.own.name if model.own is not None else model.tag
        return Target(path=environment.models_file, table=(TABLE, name), model=model.tag)
    if profile is None:
        return Target(path=environment.config_file)
    path = profile_path(environment, profile)
    if not path.exists():
        raise unknown_profile(environment, profile)
    return Target(path=path)


def parse_value(key: str, text: str, target: Target) -> Any:
    """The value that a text stands for, if it may be set there. Raises click.UsageError."""
    setting = SETTINGS[key]
    if target.model is not None and not setting.per_model:
        raise click.UsageError(f"{key} is the same for every model, it cannot be set for {target.model} alone")
    try:
        text.encode()
        return parse(setting, text)
    except UnicodeEncodeError:
        raise click.UsageError(f"{key} must be UTF-8, not {text!r}") from None
    except BadValue as error:
        raise click.UsageError(f"{key} {error}") from None


def _as_toml(value: object) -> object:
    if value is None:
        return AUTO
    return list(value) if isinstance(value, tuple) else value


def check_profile_key(key: str) -> None:
    """Raises ConfigError for what a profile cannot set."""
    if key == "profile":
        raise ConfigError("a profile cannot name a profile", hint="hipfire config profile set NAME")
