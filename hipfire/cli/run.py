"""`hipfire run`: one question, one answer on stdout; from a serve that is up, else from an engine of its own."""

import json
import sys
from collections.abc import Sequence

import click

from hipfire.catalog.store import InstalledModel, Store, open_store
from hipfire.cli.downloads import resolve_or_pull
from hipfire.cli.help import ExampledCommand
from hipfire.cli.key import key_of
from hipfire.cli.options import setting_option, settings_of
from hipfire.cli.question import OnText, Outcome, prompt_of, question_of
from hipfire.cli.remote import ask_serve, find_serve
from hipfire.cli.tags import any_tag
from hipfire.config.environment import Environment
from hipfire.config.schema import Origin, Settings
from hipfire.errors import InvalidRequest, ModelNotFound

# Flags that say how to load the model: a serve has loaded its own.
_LOAD_KEYS = ("memory.max_seq", "memory.kv_cache")

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
@click.option("--seed", type=click.IntRange(0, 2**64 - 1), metavar="NUMBER", help="Makes the answer repeatable.")
@setting_option("prompt.system", "--system")
@click.option("--json", "as_json", is_flag=True, help="One JSON document with text, counts and timings.")
@click.option("--no-stream", is_flag=True, help="The answer when it is whole, not as it comes.")
@setting_option("memory.max_seq", "--max-seq")
@setting_option("memory.kv_cache", "--kv-mode")
@click.pass_context
def command(
    ctx: click.Context, model: str, prompt: Sequence[str], seed: int | None, as_json: bool, no_stream: bool
) -> None:
    """Ask MODEL one thing. The answer, and nothing else, goes to stdout.

    MODEL is a tag, the name of an installed file, or a path. A tag that is not here is downloaded first. If a
    serve is up on this machine, it answers; else a model is loaded for this one question, as it is for a path that the
    serve was not started with. HIPFIRE_LOCAL=1, --max-seq and --kv-mode ask for the latter. Ctrl-C stops the answer.
    """
    environment: Environment = ctx.obj
    settings = settings_of(ctx)
    text = prompt_of(prompt, _piped())
    if not text:
        raise click.UsageError("nothing is asked: give a prompt, or pipe one in", ctx)
    pieces: list[str] = []
    on_text = pieces.append if as_json or no_stream else _show
    outcome = _ask(environment, settings, model, text, seed, on_text, stream=not (as_json or no_stream))
    if as_json:
        click.echo(json.dumps(_document(outcome, "".join(pieces)), indent=2))
    else:
        click.echo("".join(pieces))
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
    environment: Environment,
    settings: Settings,
    model: str,
    prompt: str,
    seed: int | None,
    on_text: OnText,
    *,
    stream: bool,
) -> Outcome:
    store = open_store(environment)
    local = environment.local or any(settings.sourced(key).source.origin == Origin.FLAG for key in _LOAD_KEYS)
    # A serve loads no file that a request names by path, unless it was started with it: then this is done here.
    loaded = store.resolve(model).tag if store.is_elsewhere(model) else None
    serve = None if local else find_serve(environment, settings, loaded=loaded)
    if serve is not None:
        name = _name_for_serve(model, store, environment)
        question = question_of(settings, model=name, prompt=prompt, seed=seed)
        return ask_serve(serve, question, on_text, stream=stream, key=key_of(settings))
    installed = resolve_or_pull(model, store, environment)
    # Here and not above: an answer from a serve needs none of Trio, NumPy and the tokenizer.
    from hipfire.cli.local import ask_engine  # noqa: PLC0415

    question = question_of(settings, model=installed.tag, prompt=prompt, seed=seed)
    return ask_engine(question, on_text, settings=settings, store=store, home=environment.home)


def _name_for_serve(name: str, store: Store, environment: Environment) -> str:
    """What the serve may call a model; a name that means nothing here may mean something there."""
    try:
        model: InstalledModel = resolve_or_pull(name, store, environment)
    except ModelNotFound:
        return name
    return model.tag


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _document(outcome: Outcome, text: str) -> dict[str, object]:
    return {
        "model": outcome.model,
        "text": text,
        "finish_reason": outcome.finish_reason,
        "usage": {"prompt_tokens": outcome.prompt_tokens, "completion_tokens": outcome.completion_tokens},
        "timings": dict(outcome.timings),
    }
