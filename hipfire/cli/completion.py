"""`hipfire completion`: the script by which a shell completes commands, flags and tags."""

import click
from click.shell_completion import BashComplete, get_completion_class

from hipfire.cli.help import ExampledCommand

_VARIABLE = "_HIPFIRE_COMPLETE"


class _Bash(BashComplete):
    """bash with words that have colons, as tags do.

    bash breaks words at the characters of COMP_WORDBREAKS, a colon among them, and replaces only what is behind the
    last one. So click is given the line itself, whose last word is the one at -1, and what stands before the colon is
    taken off the answers. bash-completion has a function for this, but need not be installed.
    """

    source_template = r"""
%(complete_func)s() {
    local line=${COMP_LINE:0:COMP_POINT} word type value prefix=
    word=${line##*[[:space:]]}
    [[ -n $word ]] || line+="''"
    if [[ $word == *:* && $COMP_WORDBREAKS == *:* ]]; then
        prefix=${word%%"${word##*:}"}
    fi
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("${value#"$prefix"}") ;;
        esac
    done < <(env COMP_WORDS="$line" COMP_CWORD=-1 %(complete_var)s=bash_complete "$1")
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@click.command(
    "completion",
    cls=ExampledCommand,
    examples=[
        ('eval "$(hipfire completion bash)"', "in ~/.bashrc"),
        ('eval "$(hipfire completion zsh)"', "in ~/.zshrc"),
        ("mkdir -p ~/.config/fish/completions", ""),
        ("hipfire completion fish > ~/.config/fish/completions/hipfire.fish", ""),
    ],
)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    completion = _Bash if shell == "bash" else get_completion_class(shell)
    assert completion is not None
    click.echo(completion(ctx.find_root().command, {}, "hipfire", _VARIABLE).source())
