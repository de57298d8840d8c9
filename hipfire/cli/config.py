"""`hipfire config`: shows the settings and where they come from, and changes them in their files."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from hipfire.cli.config_profile import profile
from hipfire.cli.config_target import (
    KeyType,
    Target,
    check_profile_key,
    complete_profile,
    complete_value,
    parse_value,
    target_of,
)
from hipfire.cli.config_view import View
from hipfire.cli.help import ExampledCommand, ExampledGroup, no_such_command
from hipfire.cli.options import layers_of
from hipfire.config.environment import Environment
from hipfire.config.layers import read_profile
from hipfire.config.schema import NO_PROFILE, SETTINGS, key_of
from hipfire.config.values import shown
from hipfire.errors import ConfigError
from hipfire.lifecycle.processes import SERVE, find_processes

if TYPE_CHECKING:
    from hipfire.catalog.store import InstalledModel

_MODEL = "hipfire.config.model"


class _Config(ExampledGroup):
    """A group whose first word may be a model."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        may_be_model = args and not args[0].startswith("-") and args[0] not in self.commands
        # Without a command behind it, it is more likely a command misspelt.
        if may_be_model and ((args[1:2] and args[1] in self.commands) or ctx.resilient_parsing):
            ctx.meta[_MODEL] = args.pop(0)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        items = super().shell_complete(ctx, incomplete)
        if _MODEL in ctx.meta:
            return items
        # Here and not above: model files need NumPy, which most of these commands do not wait for.
        from hipfire.cli.tags import any_tag  # noqa: PLC0415

        return items + [CompletionItem(tag) for tag in any_tag(ctx, click.Argument(["model"]), incomplete)]


@click.group(
    "config",
    cls=_Config,
    subcommand_metavar="[MODEL] COMMAND [ARGS]...",
    examples=[
        ("hipfire config list", "every setting, and where it comes from"),
        ("hipfire config set port 8080", "in config.toml; port is short for serve.port"),
        ("hipfire config explain serve.port", "what wins, and what it shadows"),
        ("hipfire config smollm2:135m set temperature 0.7", "for one model alone, in models.toml"),
        ("hipfire config reset port", "as if it had never been set"),
    ],
)
def command() -> None:
    """Show the settings and where they come from, and change them.

    With a MODEL first it is about the settings of that model alone.
    """


def _model(ctx: click.Context) -> "InstalledModel | None":
    """The model that was named. Raises ModelNotFound."""
    name = ctx.meta.get(_MODEL)
    if name is None:
        return None
    from hipfire.catalog.store import open_store  # noqa: PLC0415, as above

    return open_store(ctx.obj).resolve_or_expect(name)


def _view(ctx: click.Context) -> View:
    """The settings with all their sources, those of the model too if one was named."""
    model, layers = _model(ctx), layers_of(ctx)
    if model is not None:
        from hipfire.catalog.model_layers import read_layers_of  # noqa: PLC0415, as above

        for layer in read_layers_of(model):
            layers = layers.with_layer(layer)
    return View(layers=layers, environment=ctx.obj, model=None if model is None else model.tag)


_JSON = click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
_PROFILE = click.option(
    "--profile",
    "in_profile",
    metavar="NAME",
    shell_complete=complete_profile,
    help="In this profile, not in config.toml.",
)


@command.command(
    "list",
    cls=ExampledCommand,
    examples=[
        ("hipfire config list", ""),
        ("hipfire config smollm2:135m list", "what holds for one model"),
        ("hipfire config list --json | jq '.[] | select(.place)'", "what is not built-in"),
    ],
)
@_JSON
@click.pass_context
def list_settings(ctx: click.Context, as_json: bool) -> None:
    """List the settings in force, each with its source."""
    view = _view(ctx)
    _show(ctx, view.list_json() if as_json else view.list_text())
    if view.model is None and not as_json:
        click.echo("a model's card or file may differ: hipfire config MODEL list", err=True)


@command.command("get", cls=ExampledCommand, examples=[("hipfire config get serve.port", "the value and nothing else")])
@click.argument("key", type=KeyType())
@click.pass_context
def get(ctx: click.Context, key: str) -> None:
    """Print the value of KEY that is in force."""
    click.echo(shown(SETTINGS[key], _view(ctx).layers.settings().sourced(key).value))


@command.command(
    "explain",
    cls=ExampledCommand,
    short_help="Show what each source says of KEY, and which wins.",
    examples=[
        ("hipfire config explain serve.port", ""),
        ("hipfire config smollm2:135m explain temperature", "what a model's card and file say too"),
        ("hipfire config explain max_seq -- serve --max-seq 4096", "as it would be for this command"),
    ],
)
@click.argument("key", type=KeyType())
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@_JSON
@click.pass_context
def explain(ctx: click.Context, key: str, words: Sequence[str], as_json: bool) -> None:
    """Show what each source says of KEY: which value wins and from where, and what it shadows.

    Behind -- may stand a command with its flags, whose settings then count.
    """
    if words:
        _note_flags(ctx, words)
    view = _view(ctx)
    _show(ctx, view.explain_json(key) if as_json else view.explain_text(key))


def _show(ctx: click.Context, text: str) -> None:
    environment: Environment = ctx.obj
    click.echo(text, color=False if environment.no_color else None)


def _note_flags(ctx: click.Context, words: Sequence[str]) -> None:
    """Read a command line without running it. Raises click.UsageError."""
    root = ctx.find_root()
    commands = root.command
    assert isinstance(commands, click.Group)
    name, *rest = words
    found = commands.get_command(root, name)
    if found is None:
        raise no_such_command(name, commands.list_commands(root), ctx)
    found.make_context(name, rest, parent=root)


@command.command(
    "set",
    cls=ExampledCommand,
    context_settings={"ignore_unknown_options": True},
    examples=[
        ("hipfire config set serve.port 8080", ""),
        ("hipfire config smollm2:135m set temperature 0.7", "for one model alone"),
        ("hipfire config set --profile quiet log.level error", "in a profile"),
        ("hipfire config set allowed_hosts box.lan,box", "a list"),
    ],
)
@click.argument("key", type=KeyType())
@click.argument("value", shell_complete=complete_value)
@_PROFILE
@click.pass_context
def set_value(ctx: click.Context, key: str, value: str, in_profile: str | None) -> None:
    """Set KEY to VALUE in config.toml, or with a MODEL in models.toml. The rest of the file stays as it is."""
    target = target_of(ctx.obj, _model(ctx), in_profile)
    if in_profile is not None:
        check_profile_key(key)
    parsed = parse_value(key, value, target)
    if key == "profile" and parsed != NO_PROFILE:
        # One that is not there would stop nearly every command.
        read_profile(ctx.obj, parsed)
    target.set({key: parsed})
    click.echo(f"{key} = {shown(SETTINGS[key], parsed)} in {target.name}", err=True)
    _say_what_holds(ctx, key, target)


@command.command(
    "reset",
    cls=ExampledCommand,
    short_help="Take KEY out of config.toml or models.toml.",
    examples=[("hipfire config reset serve.port", ""), ("hipfire config reset --all", "asks first")],
)
@click.argument("key", required=False, metavar="[KEY]", shell_complete=KeyType().shell_complete)
@click.option("--all", "everything", is_flag=True, help="Every setting of the file.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@_PROFILE
@click.pass_context
def reset(ctx: click.Context, key: str | None, everything: bool, yes: bool, in_profile: str | None) -> None:
    """Take KEY out of config.toml, or with a MODEL out of its table in models.toml."""
    if (key is None) != everything:
        raise click.UsageError("give a KEY, or --all", ctx)
    target = target_of(ctx.obj, _model(ctx), in_profile)
    if everything and not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask: -y resets without asking", ctx)
        click.confirm(f"take every setting out of {target.name}?", abort=True, err=True)
    removed = target.reset(None if key is None else key_of(key) or key)
    if key is not None and not removed:
        # A key that is no setting's can be taken out only where it stands.
        key = KeyType().convert(key, None, ctx)
        click.echo(f"{key} is not set in {target.name}", err=True)
    elif not removed:
        click.echo(f"nothing is set in {target.name}", err=True)
    for name in removed:
        click.echo(f"{name} is out of {target.name}", err=True)
        if (known_key := key_of(name)) is not None:
            _say_what_holds(ctx, known_key, target)


def _say_what_holds(ctx: click.Context, key: str, target: Target) -> None:
    """Say it where something else wins over the file that was changed, and where a server has yet to hear of it."""
    environment: Environment = ctx.obj
    try:
        sourced = _view(ctx).layers.settings().sourced(key)
    except ConfigError as error:
        click.echo(f"still wrong: {error}", err=True)
        return
    if not sourced.source.place.startswith(f"{target.path}:"):
        click.echo(f"in force is {shown(SETTINGS[key], sourced.value) or '–'} ({sourced.source.place})", err=True)
    if any(process.role == SERVE for process in find_processes(environment.home)):
        click.echo("the server that is up goes on with what it read: hipfire restart", err=True)


command.add_command(profile)
