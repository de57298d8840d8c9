"""How far the load of a model is, as a bar on stderr that goes when it is done. Shown on terminals only."""

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn


class LoadBar:
    """A context manager; `close` may come before its end."""

    def __init__(self, console: Console) -> None:
        columns = TextColumn("{task.description}", markup=False), BarColumn(), TaskProgressColumn()
        self._progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._progress.add_task("loading", total=1.0)

    def show(self, tag: str, fraction: float) -> None:
        """Note that this part of a model, 0 to 1, is loaded."""
        self._progress.update(self._task, description=f"loading {tag}", completed=fraction)

    def close(self) -> None:
        """Take the bar away. Idempotent."""
        self._progress.stop()

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
