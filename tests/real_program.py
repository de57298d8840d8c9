"""The real program, `python -m hipfire`, in a state root of its own."""

import os
import select
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import attrs

TINY = Path(__file__).parents[1] / "fixtures" / "tiny-llama" / "model.gguf"

TIMEOUT_S = 60


@attrs.frozen(kw_only=True)
class Program:
    """`python -m hipfire` with a home folder, and an environment that has nothing of ours."""

    home: Path
    variables: dict[str, str]
    cleanup: ExitStack

    @property
    def models_dir(self) -> Path:
        return self.home / ".hipfire" / "models"

    def run(self, *args: str, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        """Run it to its end."""
        return subprocess.run(
            self._command(args),
            input=stdin,
            env={**self.variables, **variables},
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def start(self, *args: str, **variables: str) -> "subprocess.Popen[str]":
        """Start it; it is killed at the end of the test."""
        process = subprocess.Popen(
            self._command(args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**self.variables, **variables},
            cwd=self.home,
            text=True,
            # Our own Ctrl-C is not for it.
            start_new_session=True,
        )
        self.cleanup.enter_context(process)
        self.cleanup.callback(process.kill)
        return process

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [sys.executable, "-m", "hipfire", *args]

    def processes(self) -> list[int]:
        """The processes of this home, told by their environment: the program and whatever it started."""
        mark = f"HOME={self.home}\0".encode()
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if mark in _read(path)]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        # It has ended.
        return b""


def wait_for_end(pids: list[int], *, timeout_s: float) -> None:
    """Wait until none of these processes runs any more."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            ready, _, _ = select.select([handle], [], [], timeout_s)
        finally:
            os.close(handle)
        assert ready, f"process {pid} still runs after {timeout_s} s"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def read_until(process: "subprocess.Popen[str]", text: str) -> str:
    """Read the process's stderr up to the line that has a text in it; return all of it so far."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError(f"it ended without saying {text!r}:\n" + "".join(lines))
