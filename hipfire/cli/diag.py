"""`hipfire diag`: looks at everything that has to fit together, and says what does not and what to do about it."""

import json

import attrs
import click

from hipfire.cli.examination import Examination, examine
from hipfire.cli.help import ExampledCommand
from hipfire.config.environment import Environment

_MARKS = {"ok": ("ok", "green"), "note": ("note", "yellow"), "problem": ("problem", "red")}


@click.command(
    "diag",
    cls=ExampledCommand,
    examples=[
        ("hipfire diag", ""),
        ("hipfire diag --json > diag.json", "to go with a bug report; it has paths and names of models, no prompts"),
    ],
)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> int:
    """Check versions, processor, kernels, memory, models, settings and the port.

    It ends with a verdict, and what to do. The exit status is 1 if something keeps hipfire from serving.
    """
    environment: Environment = ctx.obj
    found = examine(environment)
    if as_json:
        click.echo(json.dumps({**attrs.asdict(found), "healthy": found.healthy}, indent=2))
    else:
        _show(found, color=False if environment.no_color else None)
    return 0 if found.healthy else 1


def _show(found: Examination, *, color: bool | None) -> None:
    width = max(len(finding.what) for finding in found.findings)
    for finding in found.findings:
        mark, colour = _MARKS[finding.level]
        click.echo(f"{finding.what:<{width}}  {click.style(f'{mark:<7}', fg=colour)}  {finding.text}", color=color)
        if finding.advice:
            click.echo(f"{'':<{width}}           → {finding.advice}", color=color)
    click.echo()
    problems = [finding for finding in found.findings if finding.level == "problem"]
    if problems:
        what = ", ".join(finding.what for finding in problems)
        click.echo(click.style("hipfire cannot serve as things are", fg="red", bold=True) + f": {what}", color=color)
    else:
        click.echo(click.style("ready", fg="green", bold=True) + f": {found.next_step}", color=color)
