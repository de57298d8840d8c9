"""Help with examples: commands whose help ends in lines to copy, each with what it does."""

from collections.abc import Sequence
from typing import Any

import click


class Exampled:
    """Mixin of click's commands. `examples` are lines to copy; an empty meaning leaves the line alone."""

    def __init__(self, *args: Any, examples: Sequence[tuple[str, str]] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples

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
    """A group with examples in its help."""
