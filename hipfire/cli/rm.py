"""`hipfire rm`: delete a model that is here."""

import sys
from pathlib import Path

import click

from hipfire.catalog.partials import list_partials
from hipfire.catalog.remove import files_of, nbytes_of, remove
from hipfire.catalog.store import Store, open_store
from hipfire.cli.help import ExampledCommand
from hipfire.cli.tags import installed_tag
from hipfire.config.environment import Environment
from hipfire.errors import ModelFileError


@click.command(
    "rm",
    cls=ExampledCommand,
    examples=[("hipfire rm smollm2:135m", "asks first"), ("hipfire rm -y smollm2:135m", "does not")],
)
@click.argument("tag", shell_complete=installed_tag)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def command(ctx: click.Context, tag: str, yes: bool) -> None:
    """Delete the model TAG from the models folder: all its files, or the link to them, or an unfinished download.

    A server that has it loaded goes on with it until it is unloaded.
    """
    environment: Environment = ctx.obj
    store = open_store(environment)
    name, paths = _doomed(tag, store)
    size = f"{sum(nbytes_of(path) for path in paths) / 1e6:,.0f} MB"
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("nobody is there to ask: -y deletes without asking", ctx)
        click.confirm(f"delete {name} ({size}) from {store.models_dir}?", abort=True, err=True)
    remove(paths)
    click.echo(f"deleted {name} ({size})", err=True)


def _doomed(tag: str, store: Store) -> tuple[str, list[Path]]:
    """What is to be deleted: an installed model's files, or what a download has left. Raises ModelNotFound."""
    card = store.card_of(tag)
    names = {tag, card.tag if card is not None else tag}
    for partial in list_partials(store.models_dir):
        if names & {partial.name, partial.file} and not (store.models_dir / partial.file).exists():
            if partial.running:
                raise ModelFileError(f"{partial.name} is being downloaded", hint="stop it first: hipfire stop --all")
            return f"what was downloaded of {partial.name}", [partial.folder]
    model = store.resolve(tag)
    return model.tag, files_of(model, store.models_dir)
