"""Help with examples: commands whose help ends in lines to copy, each with what it does."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import click


class Exampled:
    """Mixin of click's commands. `examples` are lines to copy; an empty meaning leaves the line alone.

    `foreign` has options of similar programs that people may try, each with what to write here instead.
    """

    def __init__(
        self,
        *args: Any,
        examples: Sequence[tuple[str, str]] = (),
        foreign: Mapping[str, str] = MappingProxyType({}),
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.foreign = foreign

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse. An option without its value is an error that click's parser does not give the command of."""
        try:
            left: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]  # click's, as this is a mixin
        except click.NoSuchOption as error:
            if (instead := self.foreign.get(error.option_name)) is None:
                raise
            raise click.UsageError(f"no such option {error.option_name!r}: {instead}", ctx) from None
        except click.UsageError as error:
            error.ctx = error.ctx or ctx
            raise
        return left

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples, meaning above line: beside it a long line would leave no room."""
        del ctx
        if not self.examples:
            return
        with formatter.section("Examples"):
            for line, meaning in self.examples:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n")
                if meaning:
                    formatter.write(f"{'':{formatter.current_indent}}    {meaning}\n")


class ExampledCommand(Exampled, click.Command):
    """A command with examples in its help."""


class ExampledGroup(Exampled, click.Group):
    """A group with examples in its help. A command that it does not have is answered with the nearest."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if not args[0].startswith("-") and not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            raise no_such_command(args[0], self.list_commands(ctx), ctx)
        return super().resolve_command(ctx, args)


def no_such_command(name: str, known: Iterable[str], ctx: click.Context) -> click.UsageError:
    """The error that there is no such command."""
    near = difflib.get_close_matches(name, known, n=1)
    return click.UsageError(f"there is no command {name!r}" + (f", did you mean {near[0]}?" if near else ""), ctx)
