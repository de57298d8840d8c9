"""`hipfire ps`: what of hipfire runs, of this state root."""

import json
from collections.abc import Mapping
from typing import Any

import attrs
import click

from hipfire.cli.help import ExampledCommand
from hipfire.cli.key import known_key
from hipfire.config.environment import Environment
from hipfire.lifecycle.health import read_health, read_stats, takes_connections
from hipfire.lifecycle.processes import ENGINE, SERVE, Process, find_processes
from hipfire.lifecycle.procfs import age_s, memory_nbytes, parent

_PIPE_WIDTH = 500


@attrs.frozen(kw_only=True)
class Row:
    """A process as it is shown; the fields' names are those of the JSON document."""

    pid: int
    role: str
    model: str | None
    load_error: str | None
    """Why the last load of a serve failed."""
    device: str | None
    memory_bytes: int
    uptime_s: float
    host: str | None
    port: int | None
    port_state: str | None
    """open, silent (connects but says nothing), closed (stopping, or still starting), other (somebody else's)."""
    status: str | None
    queue_depth: int | None
    in_flight: int | None


@click.command(
    "ps",
    cls=ExampledCommand,
    examples=[("hipfire ps", ""), ("hipfire ps --json | jq '.[] | select(.role == \"serve\") | .pid'", "for a script")],
)
@click.option("-j", "--json", "as_json", is_flag=True, help="One JSON document, for programs.")
@click.pass_obj
def command(environment: Environment, as_json: bool) -> None:
    """Show the serves, engines and downloads of this state root (~/.hipfire, or HIPFIRE_HOME)."""
    rows = read_rows(environment)
    if as_json:
        click.echo(json.dumps([attrs.asdict(row) for row in rows], indent=2))
    elif rows:
        _print_rows(rows)
    else:
        click.echo("nothing is running; hipfire serve -d starts a server", err=True)


def read_rows(environment: Environment) -> list[Row]:
    """The processes of the state root, each engine with what its serve knows of it."""
    processes = find_processes(environment.home)
    key = known_key(environment)
    serves = {process.pid: _serve_row(process, key) for process in processes if process.role == SERVE}
    rows = []
    for process in processes:
        if process.role == SERVE:
            rows.append(serves[process.pid])
        else:
            rows.append(_row(process, of=serves.get(parent(process.pid) or 0) if process.role == ENGINE else None))
    return rows


def _serve_row(process: Process, key: str | None) -> Row:
    row = _row(process, of=None)
    if process.endpoint is None:
        return row
    health = read_health(process.endpoint)
    is_own = health is not None and health.get("pid") == process.pid
    stats = read_stats(process.endpoint, key=key) if is_own else None
    if health is None or not is_own:
        state = "other" if health is not None else "silent" if takes_connections(process.endpoint) else "closed"
        return attrs.evolve(row, port_state=state)
    return attrs.evolve(row, port_state="open", **_answers(health, stats or {}))


def _answers(health: Mapping[str, Any], stats: Mapping[str, Any]) -> dict[str, Any]:
    return {
        # What it was started for may be unloaded, or another may be loaded by now.
        "model": health.get("model") or health.get("loading_model"),
        "status": "loading" if health.get("loading_model") else health.get("status"),
        "load_error": stats.get("load_error"),
        "device": stats.get("device"),
        "queue_depth": stats.get("queue_depth"),
        "in_flight": stats.get("in_flight"),
    }


def _row(process: Process, *, of: Row | None) -> Row:
    """What the machine tells of a process; an engine has model and device of the serve that it is `of`."""
    return Row(
        pid=process.pid,
        role=process.role,
        model=process.model if of is None else of.model,
        load_error=None,
        device=None if of is None else of.device,
        memory_bytes=memory_nbytes(process.pid),
        uptime_s=round(age_s(process.started), 1),
        host=process.host,
        port=process.port,
        port_state=None,
        status=None,
        queue_depth=None,
        in_flight=None,
    )


def _print_rows(rows: list[Row]) -> None:
    # Here and not above: it takes longer to import than all else that `ps --json` does.
    from rich.console import Console  # noqa: PLC0415
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    console = Console()
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("pid", "role", "model", "device", "memory", "up", "port", "status", "queue"):
        table.add_column(column, justify="right" if column in {"pid", "memory", "queue"} else "left")
    for row in rows:
        table.add_row(
            str(row.pid),
            row.role,
            escape(_model(row)),
            escape(row.device or "–"),
            f"{row.memory_bytes / 1e6:,.0f} MB",
            _duration(row.uptime_s),
            "–" if row.port is None else f"{row.port} {row.port_state}",
            row.status or "–",
            "–" if row.queue_depth is None else str(row.queue_depth),
        )
    console.print(table)


def _model(row: Row) -> str:
    """The model that is loaded, or else why none is."""
    if row.model is None and row.load_error is not None:
        return f"failed: {row.load_error}"
    return row.model or "–"


def _duration(seconds: float) -> str:
    """`5s`, `3m 20s`, `7h 5m`, `3d 2h`."""
    minutes, hours, days = int(seconds // 60), int(seconds // 3600), int(seconds // 86400)
    if days:
        return f"{days}d {hours % 24}h"
    if hours:
        return f"{hours}h {minutes % 60}m"
    return f"{minutes}m {int(seconds) % 60}s" if minutes else f"{int(seconds)}s"
