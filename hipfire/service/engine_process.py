"""The engine as a child process that speaks over its stdin and stdout. Knows nothing of what is said."""

import subprocess
import sys
from collections.abc import Awaitable, Callable
from typing import Protocol

import trio


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


Spawn = Callable[[], Awaitable[EngineProcess]]


async def spawn_engine(log_level: str = "info") -> EngineProcess:
    """Start the engine with this interpreter. It logs to our stderr and ends when its stdin closes.

    Raises OSError.
    """
    return await trio.lowlevel.open_process(
        [sys.executable, "-m", "hipfire.engine.worker", log_level],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in a terminal is for the server, which lets answers in flight finish: the engine must outlive it.
        start_new_session=True,
    )
