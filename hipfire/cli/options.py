"""Flags that set a setting for one run: declared by the setting's key, checked and explained by its declaration."""

from collections.abc import Callable
from typing import Any

import click
from click.shell_completion import CompletionItem

from hipfire.config.environment import Environment
from hipfire.config.layers import Layers, read_layers
from hipfire.config.schema import SETTINGS, Setting, Settings
from hipfire.config.values import AUTO, BadValue, parse

_FLAGS = "hipfire.flags"


class SettingType(click.ParamType[str]):
    """Text that a setting's value can be written as. Converts to itself: `resolve` reads it."""

    def __init__(self, key: str) -> None:
        self.key = key
        setting = SETTINGS[key]
        kind = setting.type if isinstance(setting.type, type) else None
        self.name = (
            "number" if setting.within is not None else "|".join(setting.choices) or getattr(kind, "__name__", "text")
        )

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            parse(SETTINGS[self.key], value)
        except BadValue as error:
            self.fail(f"it {error}", param, ctx)
        return value

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, param
        return [CompletionItem(choice) for choice in SETTINGS[self.key].choices if choice.startswith(incomplete)]


class WholeNumber(click.IntRange):
    """A whole number in a range, and an error that says which."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number: int = super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"it must be a whole number from {self.min} to {self.max}, not {value}", param, ctx)
        return number


def setting_option(key: str, *names: str, help_text: str | None = None) -> Callable[[Any], Any]:
    """A flag for a setting. The command's function does not get it: see `settings_of`."""

    def keep(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
        if value is not None:
            give_flag(ctx, key, value, param.opts[-1])

    setting = SETTINGS[key]
    default = f"{setting.default:g}" if isinstance(setting.default, float) else setting.default
    if default is None and setting.within is not None:
        default = AUTO
    if setting.group == "generation":
        default = f"the model card's, or {default}"
    text = help_text or setting.doc
    return click.option(
        *names,
        type=SettingType(key),
        callback=keep,
        expose_value=False,
        help=text if default is None else f"{text}  [{default}]",
        metavar="|".join([*setting.choices, *_words(setting)]) if setting.choices else None,
    )


def _words(setting: Setting) -> list[str]:
    """The forms that are one word, such as hip:N: help has no room for the others."""
    return [form.what for form in setting.forms if " " not in form.what]


def flag_option(key: str, value: str, *names: str, help_text: str) -> Callable[[Any], Any]:
    """A flag that gives a setting one value. The command's function does not get it: see `settings_of`."""

    def keep(ctx: click.Context, param: click.Parameter, is_given: bool) -> None:
        if is_given:
            give_flag(ctx, key, value, param.opts[-1])

    return click.option(*names, is_flag=True, callback=keep, expose_value=False, help=help_text)


def give_flag(ctx: click.Context, key: str, text: str, name: str) -> None:
    """Note that a setting was given on the command line. Raises click.BadParameter for what it cannot be."""
    try:
        parse(SETTINGS[key], text)
    except BadValue as error:
        raise click.UsageError(f"{name}: {key} {error}", ctx) from None
    ctx.meta.setdefault(_FLAGS, []).append((key, text, name))


def settings_of(ctx: click.Context) -> Settings:
    """The settings in force for the command under way. Raises ConfigError."""
    return layers_of(ctx).settings()


def layers_of(ctx: click.Context) -> Layers:
    """The same with what each source says. Raises ConfigError."""
    environment: Environment = ctx.obj
    return read_layers(environment, flags=ctx.meta.get(_FLAGS, []))
