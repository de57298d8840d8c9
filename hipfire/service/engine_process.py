"""The engine as a child process that speaks over its stdin and stdout. Knows nothing of what is said."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import trio

import hipfire


class EngineProcess(Protocol):
    """What the link needs of a running engine; `trio.Process` with pipes is one."""

    @property
    def pid(self) -> int: ...

    @property
    def stdin(self) -> trio.abc.SendStream | None: ...

    @property
    def stdout(self) -> trio.abc.ReceiveStream | None: ...

    def kill(self) -> None: ...

    async def wait(self) -> int:
        """Wait for the end; return the exit status, negative for a signal."""
        ...


_PACKAGE_PARENT = Path(hipfire.__file__).parents[1]

Spawn = Callable[[], Awaitable[EngineProcess]]


async def spawn_engine(log_level: str = "info", home: Path | None = None, *, log_format: str = "text") -> EngineProcess:
    """Start the engine with this interpreter. It logs to our stderr and ends when its stdin closes.

    The state root `home` goes among its arguments, for those who look for the processes of one: see
    `lifecycle.processes`. Raises OSError.
    """
    mark = [] if home is None else [str(home)]
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "hipfire.engine.worker", log_level, log_format, *mark],
        # With -m Python looks into the working directory first: in a checkout, or beside a numpy.py, that would be
        # another engine than ours.
        cwd=_PACKAGE_PARENT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in a terminal is for the server, which lets answers in flight finish: the engine must outlive it.
        start_new_session=True,
    )
