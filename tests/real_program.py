"""The real program, `python -m hipfire`, in a state root of its own."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import attrs
import httpx
from terminal import Terminal, in_terminal

import hipfire
from hipfire.lifecycle.procfs import parent

TINY = Path(__file__).parents[1] / "fixtures" / "tiny-llama" / "model.gguf"

TIMEOUT_S = 60

_ROOT = Path(hipfire.__file__).parents[1]


@attrs.frozen(kw_only=True)
class Program:
    """`python -m hipfire` with a home folder, and an environment that has nothing of ours."""

    home: Path
    variables: dict[str, str]
    cleanup: ExitStack
    prefix: tuple[str, ...] = ()
    """A program that starts ours, such as `unshare`."""

    @property
    def root(self) -> Path:
        """The state root."""
        return self.home / ".hipfire"

    @property
    def models_dir(self) -> Path:
        return self.root / "models"

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

    @contextmanager
    def in_terminal(self, *args: str, width: int = 80, height: int = 24, **variables: str) -> Iterator[Terminal]:
        """Run it in a terminal of its own; it is killed in the end."""
        environment = {**self.variables, **variables}
        with in_terminal(
            self._command(args), variables=environment, cwd=self.home, width=width, height=height
        ) as terminal:
            yield terminal

    def _command(self, args: tuple[str, ...]) -> list[str]:
        return [*self.prefix, sys.executable, "-m", "hipfire", *args]

    def ps(self) -> list[dict[str, Any]]:
        """What `hipfire ps` shows."""
        rows: list[dict[str, Any]] = json.loads(self.run("ps", "--json").stdout)
        return rows

    def processes(self) -> list[int]:
        """The processes of this home, told by their environment: the program and whatever it started."""
        mark = f"HOME={self.home}\0".encode()
        # Without a pattern for what lies in the folders: a process may end while it is looked for.
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()]
        return [pid for pid in pids if mark in _read(Path(f"/proc/{pid}/environ"))]


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


@contextmanager
def program_in(home: Path) -> Iterator[Program]:
    """The program with this home; what it started and still runs is killed in the end."""
    # A test runner in the background of a script ignores SIGINT, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as cleanup:
        cleanup.callback(signal.signal, signal.SIGINT, before)
        variables = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(_ROOT)}
        # On the default port someone may have a serve of their own, which `run` would ask.
        variables["HIPFIRE_PORT"] = str(free_port())
        yield Program(home=home, variables=variables, cleanup=cleanup)


@attrs.frozen(kw_only=True)
class Serve:
    """A serve of the tiny model, which is loaded."""

    program: Program
    process: "subprocess.Popen[str]"
    port: int

    @property
    def pidfile(self) -> Path:
        return self.program.root / "serve.pid"

    @property
    def engine(self) -> int:
        """The process id of its engine."""
        return self.engine_of(self.process.pid)

    def engine_of(self, serve: int) -> int:
        """The process id of the engine of any serve of this home."""
        (pid,) = [row["pid"] for row in self.program.ps() if row["role"] == "engine" and parent(row["pid"]) == serve]
        assert isinstance(pid, int)
        return pid

    @contextmanager
    def answer_under_way(self) -> Iterator[Iterator[str]]:
        """The lines of a streamed answer, which has begun and goes on when the engine is told to: SIGCONT.

        The serve must be a slow one.
        """
        engine = self.engine
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
        url = f"http://127.0.0.1:{self.port}/v1/chat/completions"
        with httpx.stream("POST", url, json=body, timeout=TIMEOUT_S, trust_env=False) as reply:
            lines = reply.iter_lines()
            next(lines)
            os.kill(engine, signal.SIGSTOP)
            try:
                yield lines
            finally:
                # Stopped, it would not even notice that its serve is gone.
                with suppress(ProcessLookupError):
                    os.kill(engine, signal.SIGCONT)


@contextmanager
def serve_in(home: Path, **variables: str) -> Iterator[Serve]:
    """A serve with this home, loaded."""
    with program_in(home) as program:
        port = int(program.variables["HIPFIRE_PORT"])
        process = program.start("serve", str(TINY), str(port), **variables)
        read_until(process, "stop it")
        yield Serve(program=program, process=process, port=port)
