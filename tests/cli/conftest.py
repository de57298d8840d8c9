"""The real program in a state root of its own."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_program import TINY, Program

import hipfire

_ROOT = Path(hipfire.__file__).parents[1]


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The program in an empty home."""
    # A test runner in the background of a script ignores SIGINT, and children inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with ExitStack() as cleanup:
        cleanup.callback(signal.signal, signal.SIGINT, before)
        variables = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(_ROOT)}
        yield Program(home=tmp_path, variables=variables, cleanup=cleanup)


@pytest.fixture
def install(program: Program) -> Callable[[str], Path]:
    """Put the tiny model into the models folder under a name."""

    def install(name: str) -> Path:
        program.models_dir.mkdir(parents=True, exist_ok=True)
        path = program.models_dir / name
        path.symlink_to(TINY)
        return path

    return install
