"""Tags that a shell completes on the Tab key. Knows no shell: click does."""

import click

from hipfire.catalog.registry import load_registry
from hipfire.catalog.store import open_store
from hipfire.config.environment import Environment
from hipfire.errors import ConfigError


def installed_tag(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The tags of models that are here. They may have colons, at which bash begins a new word: click's script copes."""
    del param
    environment: Environment = ctx.obj
    try:
        store = open_store(environment)
    except ConfigError:
        # A shell has nowhere to say it; the command will.
        return []
    names = [name for listing in store.list_installed() for name in (listing.model.tag, *listing.model.aliases)]
    return [name for name in names if name.startswith(incomplete)]


def known_tag(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The tags of the registry."""
    del ctx, param
    return [tag for tag in load_registry().cards if tag.startswith(incomplete)]


def any_tag(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Both: what `run` and `serve` take."""
    both = {*installed_tag(ctx, param, incomplete), *known_tag(ctx, param, incomplete)}
    return sorted(both)
