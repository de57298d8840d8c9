"""`hipfire restart`: `stop --force`, then `serve`."""

import click

from hipfire.cli.help import ExampledCommand
from hipfire.cli.serve import command as serve_command
from hipfire.cli.serve import plan_of, run
from hipfire.cli.stop import stop_all_serves
from hipfire.config.environment import Environment


@click.pass_context
def _restart(ctx: click.Context, /, **flags: bool) -> None:
    """Stop every serve of this state root, by force if need be, then serve with these flags.

    The flags are those of hipfire serve. A mistake in them is reported before anything is stopped. Without -d the new
    server stays in the foreground, whatever the old one did.
    """
    environment: Environment = ctx.obj
    plan = plan_of(ctx, **flags)
    stop_all_serves(environment)
    run(plan, environment)


command = ExampledCommand(
    "restart",
    callback=_restart,
    params=list(serve_command.params),
    help=_restart.__doc__,
    examples=[
        ("hipfire restart -d", "with the settings of config.toml"),
        ("hipfire restart -d --wait smollm2:135m 8080", "with another model, on another port"),
    ],
)
