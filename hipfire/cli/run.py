"""`hipfire run`: one question, one answer on stdout; from a serve that is up, else from an engine of its own."""

import json
import sys
from collections.abc import Sequence
from functools import partial

import click

from hipfire.catalog.store import open_store
from hipfire.cli.downloads import name_for_serve, resolve_or_pull
from hipfire.cli.help import ExampledCommand
from hipfire.cli.key import key_of
from hipfire.cli.options import WholeNumber, flag_option, setting_option, settings_of
from hipfire.cli.question import Listener, Outcome, Turn, prompt_of, question_of, system_of
from hipfire.cli.remote import ask_serve, find_serve
from hipfire.cli.tags import any_tag
from hipfire.config.environment import Environment
from hipfire.config.schema import Origin, Settings
from hipfire.errors import InvalidRequest, Unsupported

# Flags that say how to load the model: a serve has loaded its own.
_LOAD_KEYS = ("memory.max_seq", "memory.kv_cache", "hardware.device")

_MAX_PIPED_NBYTES = 64 << 20


@click.command(
    "run",
    cls=ExampledCommand,
    examples=[
        ('hipfire run smollm2:135m "What is the capital of France?"', ""),
        ('git diff | hipfire run smollm2:135m "Describe this change:"', "what is piped in follows the prompt"),
        ("hipfire run ./model.gguf -t 0 -n 100 Once upon a time", "any GGUF file, the likeliest 100 tokens"),
        ("hipfire run smollm2:135m --json Hello | jq .timings", "how quick it was"),
    ],
)
@click.argument("model", shell_complete=any_tag)
@click.argument("prompt", nargs=-1)
@setting_option("generation.temperature", "-t", "--temperature")
@setting_option("generation.max_tokens", "-n", "--max-tokens")
@setting_option("generation.top_p", "--top-p")
@setting_option("generation.top_k", "--top-k")
@setting_option("generation.repeat_penalty", "--repeat-penalty")
@click.option("--seed", type=WholeNumber(0, 2**64 - 1), metavar="NUMBER", help="Makes the answer repeatable.")
@setting_option("prompt.system", "--system")
@click.option(
    "--image", "images", multiple=True, metavar="FILE", help="A picture to look at. No model of this build has eyes."
)
@flag_option("thinking", "off", "--no-think", help_text="Answer without reasoning first.")
@setting_option("reasoning_effort", "--effort")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with text, counts and timings.")
@click.option("--no-stream", is_flag=True, help="The answer when it is whole, not as it comes.")
@setting_option("memory.max_seq", "--max-seq")
@setting_option("memory.kv_cache", "--kv-mode")
@setting_option("hardware.device", "--device")
@click.pass_context
def command(
    ctx: click.Context,
    /,
    model: str,
    prompt: Sequence[str],
    seed: int | None,
    images: Sequence[str],
    as_json: bool,
    no_stream: bool,
) -> None:
    """Ask MODEL one thing. The answer, and nothing else, goes to stdout.

    MODEL is a tag, the name of an installed file, or a path. A tag that is not here is downloaded first. If a
    serve is up on this machine, it answers; else a model is loaded for this one question, as it is for a path that the
    serve was not started with. HIPFIRE_LOCAL=1, --device, --max-seq and --kv-mode ask for the latter. Ctrl-C stops the
    answer.

    Where stderr is a terminal, the model's reasoning is shown there, dimmed; elsewhere it is left out.
    """
    text = prompt_of(prompt, _piped())
    if not text:
        raise click.UsageError("nothing is asked: give a prompt, or pipe one in", ctx)
    if images:
        raise Unsupported(f"--image: {model} reads text alone, as all models of this build do")
    answer = Answer(shows=not (as_json or no_stream))
    outcome = _ask(ctx.obj, settings_of(ctx), model, text, answer, seed)
    if as_json:
        click.echo(json.dumps(answer.document(outcome), indent=2))
    else:
        click.echo("" if answer.shows else answer.text)
    _comment(outcome)


class Answer:
    """What has come so far; it `shows` the answer on stdout, or keeps it, and the reasoning on stderr."""

    def __init__(self, *, shows: bool) -> None:
        self.shows = shows
        self.text = ""
        self.reasoning = ""
        self._dims = shows and sys.stderr.isatty()

    def on_text(self, piece: str) -> None:
        if self._dims and self.reasoning and not self.text:
            click.echo("\n", err=True)
        self.text += piece
        if self.shows:
            sys.stdout.write(piece)
            sys.stdout.flush()

    def on_reasoning(self, piece: str) -> None:
        self.reasoning += piece
        if self._dims:
            click.secho(piece, err=True, nl=False, dim=True)

    def document(self, outcome: Outcome) -> dict[str, object]:
        """For --json."""
        return {
            "model": outcome.model,
            "text": self.text,
            **({"reasoning": self.reasoning} if self.reasoning else {}),
            "finish_reason": outcome.finish_reason,
            "usage": {"prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens},
            "timings": dict(outcome.timings),
            **({"warnings": list(outcome.warnings)} if outcome.warnings else {}),
        }


def _comment(outcome: Outcome) -> None:
    for warning in outcome.warnings:
        click.echo(f"({warning})", err=True)
    if outcome.finish_reason == "length" and sys.stderr.isatty():
        click.echo(f"(cut off after {outcome.completion_tokens} tokens; -n allows more)", err=True)


def _piped() -> str:
    """What is piped in; nothing where stdin is a terminal, or closed."""
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    piped = sys.stdin.buffer.read(_MAX_PIPED_NBYTES + 1)
    if len(piped) > _MAX_PIPED_NBYTES:
        raise InvalidRequest(f"more than {_MAX_PIPED_NBYTES >> 20} MiB are piped in", hint="no model reads that much")
    return piped.decode(errors="replace")


def _ask(
    environment: Environment, settings: Settings, model: str, prompt: str, answer: Answer, seed: int | None
) -> Outcome:
    store = open_store(environment)
    local = environment.local or any(settings.sourced(key).source.origin == Origin.FLAG for key in _LOAD_KEYS)
    # A serve loads no file that a request names by path, unless it was started with it: then this is done here.
    loaded = store.resolve(model).tag if store.is_elsewhere(model) else None
    serve = None if local else find_serve(environment, settings, loaded=loaded)
    system = system_of(settings)
    question = partial(
        question_of,
        settings,
        turns=[
            *([] if system is None else [Turn(role="system", content=system)]),
            Turn(role="user", content=prompt),
        ],
        seed=seed,
    )
    listener = Listener(on_text=answer.on_text, on_reasoning=answer.on_reasoning)
    if serve is not None:
        name = name_for_serve(model, store, environment, settings)
        return ask_serve(serve, question(model=name), listener, stream=answer.shows, key=key_of(settings))
    installed = resolve_or_pull(model, store, environment, chat_with=settings)
    # Here and not above: an answer from a serve needs none of Trio, NumPy and the tokenizer.
    from hipfire.cli.local import ask_engine  # noqa: PLC0415

    return ask_engine(question(model=installed.tag), listener, settings=settings, store=store, home=environment.home)
