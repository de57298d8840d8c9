"""The real program in a state root of its own."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_program import TINY, Program, Serve, program_in, serve_in


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """The program in an empty home."""
    with program_in(tmp_path) as program:
        yield program


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    """A serve of one's own, to be stopped or killed."""
    with serve_in(tmp_path) as serve:
        yield serve


@pytest.fixture
def slow_serve(tmp_path: Path) -> Iterator[Serve]:
    """A serve whose answers take long enough for something to happen meanwhile."""
    with serve_in(tmp_path, HIPFIRE_DEVICE="reference", HIPFIRE_TEMPERATURE="0") as serve:
        yield serve


@pytest.fixture(scope="module")
def shared_serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """A serve that the tests of a file leave as they found it."""
    with serve_in(tmp_path_factory.mktemp("shared")) as serve:
        yield serve


@pytest.fixture
def install(program: Program) -> Callable[[str], Path]:
    """Put the tiny model into the models folder under a name."""

    def install(name: str) -> Path:
        program.models_dir.mkdir(parents=True, exist_ok=True)
        path = program.models_dir / name
        path.symlink_to(TINY)
        return path

    return install
