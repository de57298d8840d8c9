"""The command: what it is told, and on what kind of terminal it is."""

import sys

import click

from hipfire.catalog.store import open_store
from hipfire.cli.help import ExampledCommand
from hipfire.cli.options import flag_option, setting_option, settings_of
from hipfire.cli.question import system_of
from hipfire.cli.tags import any_tag
from hipfire.config.environment import Environment


@click.command(
    "chat",
    cls=ExampledCommand,
    examples=[
        ("hipfire chat", "with the model that a serve has loaded, or the default one"),
        ("hipfire chat smollm2:135m --system 'You are a poet.'", "downloaded first if it is not here"),
        ("hipfire chat < questions.txt > answers.txt", "a message a line, in one conversation"),
    ],
)
@click.argument("model", required=False, shell_complete=any_tag)
@setting_option("generation.temperature", "-t", "--temperature")
@setting_option("generation.max_tokens", "-n", "--max-tokens")
@setting_option("prompt.system", "--system")
@flag_option("thinking", "off", "--no-think", help_text="Answer without reasoning first.")
@setting_option("reasoning_effort", "--effort")
@click.pass_context
def command(ctx: click.Context, model: str | None) -> None:
    """Talk with MODEL, in a conversation of as many turns as its context holds.

    A serve of this machine answers; where none is up, one is started in the background, and stays. Ctrl-C stops an
    answer, Ctrl-D leaves. /help lists what else there is: another model, another answer, saving, and more.

    What was typed is kept in chat_history in ~/.hipfire, for the arrow keys. Reasoning is shown dimmed. Where stdin or
    stdout is no terminal, each line is a message, and the answers alone go to stdout, an empty line between them.
    """
    environment: Environment = ctx.obj
    settings = settings_of(ctx)

    # Here and not above: help should not wait for rich and prompt_toolkit.
    from hipfire.cli.chat.answerer import reach_serve  # noqa: PLC0415
    from hipfire.cli.chat.conversation import Conversation  # noqa: PLC0415
    from hipfire.cli.chat.editor import Editor, LineReader  # noqa: PLC0415
    from hipfire.cli.chat.screen import PlainScreen, TerminalScreen  # noqa: PLC0415
    from hipfire.cli.chat.session import COMMANDS, Session  # noqa: PLC0415

    answerer = reach_serve(environment, settings, open_store(environment), model)
    conversation = Conversation(
        model=answerer.first_model() if model is None else answerer.find(model), system=system_of(settings)
    )
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or environment.variables.get("TERM") == "dumb":
        Session(conversation, answerer=answerer, screen=PlainScreen()).run(LineReader())
        return
    session = Session(conversation, answerer=answerer, screen=TerminalScreen(no_color=environment.no_color))
    session.run(
        Editor(
            history=environment.home / "chat_history",
            choices={name: answerer.models if name == "/model" else list for name in COMMANDS},
            status=session.status,
            no_color=environment.no_color,
        )
    )
