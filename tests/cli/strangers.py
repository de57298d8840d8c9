"""Processes that look like a serve of ours and are none."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from real_program import Program

from hipfire.lifecycle.procfs import start_time

_SLEEP = "import time; time.sleep(600)"


@contextmanager
def stranger(program: Program, *arguments: str) -> Iterator["subprocess.Popen[bytes]"]:
    """A process with the program's own environment, and these arguments, which it does not look at."""
    command = [sys.executable, "-c", _SLEEP, *arguments]
    with subprocess.Popen(command, env=program.variables, cwd=program.home, start_new_session=True) as process:
        try:
            yield process
        finally:
            process.kill()


def write_pidfile(program: Program, pid: int, *, started: int | None = None) -> None:
    """A pidfile that names a process; with its real start time unless told otherwise."""
    program.root.mkdir(exist_ok=True)
    fields = {"pid": pid, "started": started or start_time(pid), "host": "127.0.0.1", "port": 1}
    (program.root / "serve.pid").write_text(json.dumps(fields))
