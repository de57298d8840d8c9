"""The real program, `python -m hipfire`, in a state root of its own."""

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import attrs

_TIMEOUT_S = 60


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
            timeout=_TIMEOUT_S,
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
