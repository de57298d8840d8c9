"""Entry of the command line: the table of commands, and the one place where errors become a line and a status.

Exit status: 0 done, 1 failed, 2 used wrongly, 130 interrupted, 143 terminated. A command's module, and what it needs,
is imported only when that command runs: `hipfire --help` is instant.
"""

import errno
import importlib
import os
import signal
import sys
from types import MappingProxyType

import click

from hipfire import __version__
from hipfire.cli.help import ExampledGroup, no_such_command
from hipfire.cli.report import Reporter
from hipfire.config.environment import read_environment
from hipfire.errors import ConfigError

# Each command, and what it does in one line. Its module has its name; the function there is called `command`.
COMMANDS = MappingProxyType(
    {
        "serve": "Serve a model over HTTP, with OpenAI's API.",
        "stop": "Stop the server.",
        "restart": "Stop the server and start it anew.",
        "ps": "Show what runs: servers, engines, downloads.",
        "run": "Ask a model one thing; the answer goes to stdout.",
        "chat": "Talk with a model in the terminal.",
        "pull": "Download a model.",
        "list": "List the models that are here, or that can be pulled.",
        "rm": "Delete a model.",
        "bench": "Measure how fast a model is on this machine.",
        "config": "Show the settings and where they come from; change them.",
        "diag": "Check this machine, the models and the settings, and say what to do.",
        "completion": "Print the shell's completion script.",
    }
)

_USAGE_STATUS = 2
_INTERRUPTED_STATUS = 130
_TERMINATED_STATUS = 143
_UNWRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})


class Commands(ExampledGroup):
    """The group of all commands. Its help needs no command's module."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return super().get_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(f"hipfire.cli.{cmd_name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        rows = [
            (name, COMMANDS.get(name) or self.commands[name].get_short_help_str()) for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=[
        ("hipfire serve smollm2:135m", "download a small model and serve it"),
        ('hipfire run smollm2:135m "Why is the night dark?"', "ask it one thing"),
        ("hipfire list -r", "see what else there is"),
    ],
)
@click.version_option(__version__, prog_name="hipfire", message="%(prog)s %(version)s")
def hipfire() -> None:
    """Run language models on this machine, and serve them with OpenAI's API.

    Settings come from flags, from HIPFIRE_* variables and from ~/.hipfire/config.toml, in this order; hipfire config
    shows them all.
    """


@hipfire.command("help")
@click.argument("words", nargs=-1, metavar="[COMMAND]...")
@click.pass_context
def help_command(ctx: click.Context, words: tuple[str, ...]) -> None:
    """Show the help of a command, or of a command's command."""
    asked = ctx.find_root()
    for word in words:
        group = asked.command
        if not isinstance(group, click.Group):
            raise click.UsageError(f"{asked.command_path} has no commands", asked)
        found = group.get_command(asked, word)
        if found is None:
            raise no_such_command(word, group.list_commands(asked), asked)
        asked = click.Context(found, info_name=word, parent=asked)
    click.echo(asked.get_help())


def main() -> None:
    """Run the command line of this process, and exit."""
    try:
        environment = read_environment()
    except ConfigError as error:
        Reporter(debug=False, no_color=False).line(str(error))
        sys.exit(1)
    reporter = Reporter(debug=environment.debug, no_color=environment.no_color)
    reporter.install()
    # A command that is told to end tidies up as after Ctrl-C: a download, for one, is another process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(_TERMINATED_STATUS))
    try:
        status = hipfire.main(prog_name="hipfire", standalone_mode=False, obj=environment)
        # What is left in the buffer may not fit either.
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        sys.exit(_USAGE_STATUS)
    except click.UsageError as error:
        reporter.line(_usage_line(error))
        sys.exit(_USAGE_STATUS)
    except click.Abort:
        sys.exit(_INTERRUPTED_STATUS)
    except BrokenPipeError:
        # Whoever read our output has seen enough (`hipfire list | head -1`); the interpreter must not complain either.
        _drop_output()
        sys.exit(1)
    except OSError as error:
        if environment.debug:
            raise
        reporter.line(_system_line(error))
        _drop_output()
        sys.exit(1)
    sys.exit(status if isinstance(status, int) else 0)


def _drop_output() -> None:
    """Have what is still to be written to stdout go nowhere: the interpreter would try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _system_line(error: OSError) -> str:
    """What the system refused: with a file's name, which stdout does not have."""
    reason = error.strerror or str(error)
    if error.filename is not None:
        return f"{error.filename}: {reason}"
    return f"cannot write the output: {reason}" if error.errno in _UNWRITABLE else reason


def _usage_line(error: click.UsageError) -> str:
    """The error in one line, with the way to the command's help."""
    where = error.ctx.command_path if error.ctx is not None else "hipfire"
    what = " ".join(error.format_message().split()).removesuffix(".")
    if not what[:2].isupper():
        # Ours begin in lower case, click's do not.
        what = what[:1].lower() + what[1:]
    return f"{what} (see {where} --help)"
