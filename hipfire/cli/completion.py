"""`hipfire completion`: the script by which a shell completes commands, flags and tags."""

import click
from click.shell_completion import get_completion_class

from hipfire.cli.help import ExampledCommand

_VARIABLE = "_HIPFIRE_COMPLETE"


@click.command(
    "completion",
    cls=ExampledCommand,
    examples=[
        ('eval "$(hipfire completion bash)"', "in ~/.bashrc"),
        ('eval "$(hipfire completion zsh)"', "in ~/.zshrc"),
        ("hipfire completion fish > ~/.config/fish/completions/hipfire.fish", ""),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    completion = get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, "hipfire", _VARIABLE).source())
