"""`hipfire rm`: delete a model that is here."""

import sys

import click

from hipfire.catalog.remove import files_of, nbytes_of, remove
from hipfire.catalog.store import open_store
from hipfire.cli.help import ExampledCommand
from hipfire.cli.tags import installed_tag
from hipfire.config.environment import Environment


@click.command(
    "rm",
    cls=ExampledCommand,
    examples=[("hipfire rm smollm2:135m", "asks first"), ("hipfire rm -y smollm2:135m", "does not")],
)
@click.argument("tag", shell_complete=installed_tag)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def command(ctx: click.Context, tag: str, yes: bool) -> None:
    """Delete the model TAG from the models folder: all its files, or the link to them.

    A server that has it loaded goes on with it until it is unloaded.
    """
    environment: Environment = ctx.obj
    store = open_store(environment)
    model = store.resolve(tag)
    paths = files_of(model, store.models_dir)
    size = f"{sum(nbytes_of(path) for path in paths) / 1e6:,.0f} MB"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask: -y deletes without asking", ctx)
        click.confirm(f"delete {model.tag} ({size}) from {model.path.parent}?", abort=True, err=True)
    remove(paths)
    click.echo(f"deleted {model.tag} ({size})", err=True)
