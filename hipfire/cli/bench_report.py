"""What `hipfire bench` shows: how far it is, on stderr, and in the end a table or a JSON document. Measures nothing."""

from types import TracebackType
from typing import Self

import attrs
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from hipfire.catalog.details import Details
from hipfire.service.measurement import Measured, Plan, Sample


class BenchProgress:
    """A bar of the load and then of the runs, shown on terminals only."""

    def __init__(self, plan: Plan) -> None:
        console = Console(stderr=True)
        columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn()
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        # The warm-up is a run too.
        self._n_runs = plan.n_runs + 1
        self._task = self._progress.add_task("loading", total=100)

    def show_loading(self, _tag: str, fraction: float) -> None:
        self._progress.update(self._task, completed=round(100 * fraction))

    def show_run(self, n_done: int) -> None:
        self._progress.update(self._task, description="run", total=self._n_runs, completed=n_done)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()


def document(tag: str, details: Details, plan: Plan, measured: Measured) -> dict[str, object]:
    """For programs: what was measured, on what, and every run."""
    loaded = measured.loaded
    return {
        "model": tag,
        "architecture": loaded.architecture,
        "quant": details.quant,
        "size_bytes": details.nbytes,
        "device": loaded.device,
        "kv_cache": loaded.kv_cache,
        "prompt_tokens": plan.n_prompt,
        "answer_tokens": plan.n_answer,
        "load_ms": round(measured.load_ms, 1),
        "prefill_tok_s": _sample(measured.prefill_tok_s),
        "decode_tok_s": _sample(measured.decode_tok_s),
        "first_token_ms": _sample(measured.first_token_ms),
    }


def _sample(sample: Sample) -> dict[str, object]:
    return {
        "median": round(sample.median, 2),
        "spread": round(sample.spread, 4),
        "runs": [round(run, 2) for run in sample.runs],
    }


def print_report(tag: str, details: Details, plan: Plan, measured: Measured) -> None:
    """A heading and a table, on stdout."""
    console = Console(highlight=False)
    loaded = measured.loaded
    console.print(f"[bold]{escape(tag)}[/bold]  {details.quant}, {details.nbytes / 1e6:,.0f} MB", soft_wrap=True)
    console.print(f"{escape(loaded.device)}, {loaded.kv_cache} KV cache", soft_wrap=True)
    console.print(f"loaded in {measured.load_ms / 1000:.2f} s\n")
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("")
    for column in ("tokens", "median", "spread", "slowest", "fastest"):
        table.add_column(column, justify="right")
    for row in (
        _Row(name="prefill", n_tokens=plan.n_prompt, sample=measured.prefill_tok_s, unit="tok/s"),
        _Row(name="decode", n_tokens=plan.n_answer, sample=measured.decode_tok_s, unit="tok/s"),
        _Row(name="first token", n_tokens=plan.n_prompt, sample=measured.first_token_ms, unit="ms", is_time=True),
    ):
        table.add_row(*row.cells())
    console.print(table)
    runs = "1 run" if plan.n_runs == 1 else f"{plan.n_runs} runs"
    console.print(f"\n{runs} after one that does not count", style="dim")


@attrs.frozen(kw_only=True)
class _Row:
    name: str
    n_tokens: int
    sample: Sample
    unit: str
    is_time: bool = False

    def cells(self) -> tuple[str, ...]:
        low, high = min(self.sample.runs), max(self.sample.runs)
        slowest, fastest = (high, low) if self.is_time else (low, high)
        return (
            self.name,
            f"{self.n_tokens:,}",
            f"{self.sample.median:,.1f} {self.unit}",
            f"{100 * self.sample.spread:.1f} %",
            f"{slowest:,.1f}",
            f"{fastest:,.1f}",
        )
