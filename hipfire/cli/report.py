"""Errors as people see them: one line on stderr that says what is wrong and what to do. Knows no commands."""

import sys
from types import TracebackType

import attrs
import click

from hipfire.errors import HipfireError


@attrs.frozen(kw_only=True)
class Reporter:
    """Writes error lines: with `debug` also the tracebacks of errors, with `no_color` without colour."""

    debug: bool
    no_color: bool

    def line(self, message: str) -> None:
        """Write one line to stderr; in colour only where that is a terminal."""
        prefix = click.style("hipfire:", fg="red", bold=True)
        click.echo(f"{prefix} {message}", err=True, color=False if self.no_color else None)

    def install(self) -> None:
        """Have whatever nobody catches reported in one line."""
        sys.excepthook = self._uncaught

    def _uncaught(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if self.debug:
            sys.__excepthook__(kind, error, trace)
            return
        error = sole_cause(error)
        if isinstance(error, HipfireError):
            self.line(str(error))
        else:
            self.line(f"{type(error).__name__}: {error} (a bug in hipfire; HIPFIRE_DEBUG=1 shows where)")


def sole_cause(error: BaseException) -> BaseException:
    """The error inside the groups that nurseries wrap around it, if it is the only one.

    What ends the program on purpose (KeyboardInterrupt, SystemExit) outranks the errors that it made others fail with:
    a task that was interrupted takes down the engine that another was waiting for.
    """
    if isinstance(error, BaseExceptionGroup) and (ending := error.subgroup((KeyboardInterrupt, SystemExit))):
        return _leaf(ending)
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _leaf(error: BaseException) -> BaseException:
    return _leaf(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
