"""`hipfire stop`: ends a serve of this state root, and nothing that is not hipfire's."""

import os
from collections.abc import Iterable, Sequence

import click

from hipfire.cli.help import ExampledCommand
from hipfire.cli.key import known_key
from hipfire.cli.options import WholeNumber, settings_of
from hipfire.config.environment import Environment
from hipfire.errors import ConfigError
from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.health import read_stats, takes_connections
from hipfire.lifecycle.pidfile import Serving, read_pidfile, remove_pidfile
from hipfire.lifecycle.processes import DOWNLOAD, ENGINE, SERVE, Process, find_processes
from hipfire.lifecycle.procfs import owner, parent
from hipfire.lifecycle.stop import StopFailed, kill, terminate

# On top of the time that answers under way may take.
_MARGIN_S = 10.0
# How long something that is going to be killed gets to end by itself.
_GRACE_S = 5.0


@click.command(
    "stop",
    cls=ExampledCommand,
    examples=[
        ("hipfire stop", "the serve that was started last; answers under way are finished first"),
        ("hipfire stop 8080", "the one on this port"),
        ("hipfire stop --force", "every serve and engine, killed if it does not end by itself"),
        ("hipfire stop --all", "every serve and every download"),
    ],
)
@click.argument("port", required=False, type=WholeNumber(1, 65535))
@click.option("--force", is_flag=True, help="Kill what does not end within 5 seconds, engines too.")
@click.option("--all", "everything", is_flag=True, help="Every serve, and downloads too.")
@click.pass_context
def command(ctx: click.Context, port: int | None, force: bool, everything: bool) -> None:
    """Stop the serve of this state root, and wait until it has ended.

    Only processes that prove to be hipfire's and of this state root (~/.hipfire, or HIPFIRE_HOME) get a signal. It is
    no error if there is none. A pidfile that names a process which is gone, or a stranger, is removed.
    """
    environment: Environment = ctx.obj
    if everything and port is not None:
        raise click.UsageError("give a port or --all, not both", ctx)
    forget_stale_pidfile(environment)
    if force:
        _stop_by_force(environment, port, everything=everything)
        _report_holder(port or _usual_port(ctx))
    else:
        _stop(_wanted(environment, port, everything=everything), key=known_key(environment))


def stop_all_serves(environment: Environment) -> None:
    """Stop every serve of the state root, by force if need be. Raises StopFailed."""
    forget_stale_pidfile(environment)
    _stop_by_force(environment, None, everything=False)


def forget_stale_pidfile(environment: Environment) -> None:
    """Remove a pidfile whose process is no serve of ours, and say so. That process is left alone."""
    serving = read_pidfile(environment.pidfile)
    if serving is None or _is_ours(serving, environment):
        return
    # Root may look into every process, so what it did not find is none.
    if serving.alive and os.geteuid() not in (0, owner(serving.pid)):
        raise StopFailed(f"process {serving.pid}, which the pidfile names, belongs to another user", hint="ask them")
    remove_pidfile(environment.pidfile, serving)
    what = "is not that serve any more" if owner(serving.pid) is not None else "is gone"
    click.echo(f"removed a stale pidfile: process {serving.pid} {what}", err=True)


def _is_ours(serving: Serving, environment: Environment) -> bool:
    processes = find_processes(environment.home)
    return any((process.pid, process.started) == (serving.pid, serving.started) for process in processes)


def _wanted(environment: Environment, port: int | None, *, everything: bool) -> list[Process]:
    """The processes to stop without force; says so when there are none."""
    processes = find_processes(environment.home)
    serves = _of(processes, SERVE)
    if everything:
        wanted = [*serves, *_of(processes, DOWNLOAD)]
    elif port is not None:
        wanted = [serve for serve in serves if serve.port == port]
    else:
        wanted = _tracked(environment, serves)
    if not wanted:
        _say_none(port)
    return wanted


def _tracked(environment: Environment, serves: Sequence[Process]) -> list[Process]:
    """The serve that the pidfile names, else the only one there is. Raises StopFailed when there are more."""
    serving = read_pidfile(environment.pidfile)
    tracked = [serve for serve in serves if serving is not None and serve.pid == serving.pid]
    if not tracked and len(serves) > 1:
        ports = ", ".join(str(serve.port) for serve in serves)
        raise StopFailed(f"there are serves on ports {ports}", hint="name the port, or stop --all")
    return tracked or [*serves]


def _stop(processes: Sequence[Process], *, key: str | None) -> None:
    drain_timeout_s = max((process.drain_timeout_s for process in processes), default=0.0)
    under_way = sum(_n_under_way(process.endpoint, key) for process in processes)
    if under_way:
        click.echo(f"waiting for {under_way} under way, at most {drain_timeout_s:g} s", err=True)
    left = terminate(processes, timeout_s=drain_timeout_s + _MARGIN_S)
    _say_stopped(process for process in processes if process not in left)
    if left:
        numbers = ", ".join(str(process.pid) for process in left)
        raise StopFailed(f"process {numbers} does not end", hint="hipfire stop --force kills it")


def _stop_by_force(environment: Environment, port: int | None, *, everything: bool) -> None:
    """Ask the serves to end, of one port or all; then kill what is left of them, and the engines."""
    processes = find_processes(environment.home)
    wanted = [serve for serve in _of(processes, SERVE) if port is None or serve.port == port]
    # An engine ends with its serve, unless it hangs; and some outlived theirs.
    engines = [engine for engine in _of(processes, ENGINE) if port is None or _serve_of(engine, wanted)]
    strays = [engine for engine in engines if not _serve_of(engine, wanted)]
    if everything:
        wanted += _of(processes, DOWNLOAD)
    if not (wanted or strays):
        _say_none(port)
    left = terminate(wanted, timeout_s=_GRACE_S)
    kill([*left, *engines])
    serving = read_pidfile(environment.pidfile)
    if serving is not None and serving.pid in {process.pid for process in left}:
        remove_pidfile(environment.pidfile, serving)
    _say_stopped([*wanted, *strays])


def _serve_of(engine: Process, serves: Iterable[Process]) -> Process | None:
    """Which of these serves has started an engine."""
    pid = parent(engine.pid)
    return next((serve for serve in serves if serve.pid == pid), None)


def _usual_port(ctx: click.Context) -> int | None:
    try:
        return settings_of(ctx).serve.port
    except ConfigError:
        # A mistake in config.toml is no reason not to stop anything, and elsewhere it is reported.
        return None


def _report_holder(port: int | None) -> None:
    """Say who holds the port still: it is no process of this state root."""
    if port is None or not takes_connections(Endpoint(host="127.0.0.1", port=port)):
        return
    for process in find_processes(None):
        if process.role == SERVE and process.port == port:
            whose = f"the serve of another state root: HIPFIRE_HOME={process.home} hipfire stop {port}"
            break
    else:
        whose = "a program that is not hipfire, and was left alone"
    click.echo(f"port {port} is held by {whose}", err=True)


def _say_none(port: int | None) -> None:
    click.echo("no serve is running" if port is None else f"no serve of ours listens on port {port}", err=True)


def _say_stopped(processes: Iterable[Process]) -> None:
    for process in processes:
        click.echo(f"stopped {_name(process)} (process {process.pid})", err=True)


def _name(process: Process) -> str:
    if process.endpoint is not None:
        return f"the serve at {process.endpoint.url}"
    return f"the download of {process.model}" if process.role == DOWNLOAD else "an engine"


def _n_under_way(endpoint: Endpoint | None, key: str | None) -> int:
    stats = read_stats(endpoint, key=key) if endpoint is not None else None
    return int(stats["in_flight"]) if stats is not None else 0


def _of(processes: Iterable[Process], role: str) -> list[Process]:
    return [process for process in processes if process.role == role]
