"""`hipfire bench`: how fast a model is on this machine, measured on an engine of its own."""

import json
from functools import partial

import click

from hipfire.catalog.details import read_details
from hipfire.catalog.store import open_store
from hipfire.cli.downloads import resolve_or_pull
from hipfire.cli.help import ExampledCommand
from hipfire.cli.logs import log_nothing
from hipfire.cli.options import WholeNumber, setting_option, settings_of
from hipfire.cli.report import sole_cause
from hipfire.cli.tags import any_tag
from hipfire.config.environment import Environment
from hipfire.lifecycle.processes import SERVE, find_processes


@click.command(
    "bench",
    cls=ExampledCommand,
    examples=[
        ("hipfire bench smollm2:135m", ""),
        ("hipfire bench smollm2:135m --threads 1 -r 10", "on one thread, ten times"),
        ("hipfire bench ./model.gguf -p 2048 -n 32 --json", "a long prompt; for a program"),
    ],
)
@click.argument("model", shell_complete=any_tag)
@click.option(
    "-p",
    "--prompt-tokens",
    type=WholeNumber(1, 1 << 20),
    default=512,
    metavar="N",
    help="Length of the prompt.  [512]",
)
@click.option(
    "-n", "--tokens", type=WholeNumber(2, 1 << 20), default=128, metavar="N", help="Length of the answer.  [128]"
)
@click.option("-r", "--runs", type=WholeNumber(1, 1000), default=5, metavar="N", help="Runs that count.  [5]")
@setting_option("hardware.device", "--device")
@setting_option("hardware.threads", "--threads")
@setting_option("memory.kv_cache", "--kv-mode")
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_context
def command(ctx: click.Context, model: str, prompt_tokens: int, tokens: int, runs: int, as_json: bool) -> None:
    """Measure MODEL: time to load, time to the first token, and the speed of reading a prompt and of writing.

    It loads the model into an engine of its own, whatever serves are up; what they do at the same time slows it down,
    and is said. Prompts are random tokens, answers are as long as asked for. One run before the others does not count.

    Speeds are medians in tokens per second; the spread is from the slowest to the fastest run, in parts of the median.
    """
    environment: Environment = ctx.obj
    settings = settings_of(ctx)
    installed = resolve_or_pull(model, open_store(environment), environment)
    log_nothing()
    busy = [process for process in find_processes(environment.home) if process.role == SERVE]
    for process in busy:
        click.echo(f"a serve is up on port {process.port}; what it does meanwhile makes this slower", err=True)

    # Here and not above: neither help nor a mistake should wait for Trio and rich.
    import trio  # noqa: PLC0415

    from hipfire.cli.bench_report import BenchProgress, document, print_report  # noqa: PLC0415
    from hipfire.service.measurement import Plan, measure  # noqa: PLC0415

    details = read_details(installed.path)
    plan = Plan(path=installed.path, n_prompt=prompt_tokens, n_answer=tokens, n_runs=runs)
    with BenchProgress(plan) as progress:
        run = partial(measure, on_loading=progress.show_loading, on_run=progress.show_run)
        try:
            measured = trio.run(run, plan, settings, environment.home)
        except BaseExceptionGroup as group:
            raise sole_cause(group) from None
    if as_json:
        click.echo(json.dumps(document(installed.tag, details, plan, measured), indent=2))
    else:
        print_report(installed.tag, details, plan, measured)
