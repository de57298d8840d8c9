"""`hipfire config profile`: sets of settings that are laid over config.toml together."""

import json

import click

from hipfire.cli.config_target import Target, check_profile_key, complete_profile, parse_value
from hipfire.cli.config_view import aligned
from hipfire.cli.help import ExampledCommand, ExampledGroup
from hipfire.cli.options import layers_of
from hipfire.config.environment import Environment
from hipfire.config.layers import profile_names, profile_path, read_layers, read_profile
from hipfire.config.schema import NO_PROFILE, SETTINGS, key_of
from hipfire.config.values import shown
from hipfire.errors import ConfigError


@click.group(
    "profile",
    cls=ExampledGroup,
    examples=[
        ("hipfire config profile create quiet temperature=0 log.level=error", "make one"),
        ("hipfire config profile set quiet", "choose it, until another is chosen"),
        ("hipfire config profile set none", "choose none"),
        ("HIPFIRE_PROFILE=quiet hipfire serve", "choose it once"),
        ("hipfire config set --profile quiet top_k 1", "change it"),
    ],
)
def profile() -> None:
    """Sets of settings that are laid over config.toml together.

    A profile is a file like config.toml in the folder profiles of the state root.
    """


@profile.command("list", cls=ExampledCommand, examples=[("hipfire config profile list", "")])
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_context
def list_profiles(ctx: click.Context, as_json: bool) -> None:
    """List the profiles; the one in force is marked."""
    environment: Environment = ctx.obj
    chosen = layers_of(ctx).settings().config.profile
    found = {name: len(read_profile(environment, name)) for name in profile_names(environment)}
    if as_json:
        rows = [{"name": name, "settings": n, "in_force": name == chosen} for name, n in found.items()]
        click.echo(json.dumps(rows, indent=2))
    elif found:
        rows_of_text = [
            (name, f"{n} setting{'' if n == 1 else 's'}", "in force" if name == chosen else "")
            for name, n in found.items()
        ]
        click.echo("\n".join(aligned(rows_of_text)))
    else:
        click.echo("there are no profiles; hipfire config profile create NAME makes one", err=True)


@profile.command("show", cls=ExampledCommand, examples=[("hipfire config profile show quiet", "")])
@click.argument("name", shell_complete=complete_profile)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_obj
def show_profile(environment: Environment, name: str, as_json: bool) -> None:
    """Show what the profile NAME sets."""
    layer = {key: shown(SETTINGS[key], sourced.value) for key, sourced in read_profile(environment, name).items()}
    if as_json:
        click.echo(json.dumps(layer, indent=2))
    else:
        click.echo("".join(f"{line}\n" for line in aligned(list(layer.items()))), nl=False)


@profile.command(
    "set",
    cls=ExampledCommand,
    short_help="Lay the profile NAME over config.toml.",
    examples=[("hipfire config profile set quiet", ""), ("hipfire config profile set none", "")],
)
@click.argument("name", shell_complete=complete_profile)
@click.pass_obj
def set_profile(environment: Environment, name: str) -> None:
    """Lay the profile NAME over config.toml from now on; none takes it away again."""
    target = Target(path=environment.config_file)
    if name == NO_PROFILE:
        target.reset("profile")
        click.echo("no profile is in force", err=True)
        return
    read_profile(environment, name)
    target.set({"profile": name})
    click.echo(f"the profile {name} is in force", err=True)
    chosen = read_layers(environment).settings().sourced("profile")
    if chosen.value != name:
        click.echo(f"but here {chosen.source.place} says {chosen.value}, which comes first", err=True)


@profile.command(
    "create", cls=ExampledCommand, examples=[("hipfire config profile create quiet temperature=0 log.level=error", "")]
)
@click.argument("name")
@click.argument("values", nargs=-1, metavar="[KEY=VALUE]...")
@click.pass_obj
def create_profile(environment: Environment, name: str, values: tuple[str, ...]) -> None:
    """Make the profile NAME with these settings. It is not chosen yet."""
    path = profile_path(environment, name)
    if path.exists():
        raise ConfigError(f"there is a profile {name} already: {path}", hint=f"hipfire config set --profile {name} …")
    target = Target(path=path)
    chosen = {}
    for text in values:
        written, equals, value = text.partition("=")
        key = key_of(written)
        if not equals or key is None:
            raise click.UsageError(f"{text!r} is not KEY=VALUE with a setting's key")
        check_profile_key(key)
        chosen[key] = parse_value(key, value, target)
    target.set(chosen)
    click.echo(f"the profile {name} is in {path}; hipfire config profile set {name} chooses it", err=True)
