from collections.abc import Callable
from pathlib import Path

from real_program import TINY, Program

Install = Callable[[str], Path]


def test_a_model_is_deleted_and_a_link_s_target_stays(program: Program, install: Install) -> None:
    path = install("mine.gguf")
    done = program.run("rm", "-y", "mine")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "deleted mine (0 MB)\n")
    assert not path.is_symlink()
    assert TINY.exists()


def test_nobody_to_ask_is_wrong_use(program: Program, install: Install) -> None:
    path = install("mine.gguf")
    done = program.run("rm", "mine")
    assert done.returncode == 2
    assert done.stderr == "hipfire: nobody is there to ask: -y deletes without asking (see hipfire rm --help)\n"
    assert path.exists()


def test_a_file_elsewhere_is_not_ours_to_delete(program: Program) -> None:
    own = program.home / "own.gguf"
    own.write_bytes(TINY.read_bytes())
    done = program.run("rm", "-y", str(own))
    assert done.returncode == 1
    assert f"{own} is not in {program.models_dir} (a file of your own is yours to delete)" in done.stderr
    assert own.exists()


def test_what_is_not_here_is_said(program: Program) -> None:
    done = program.run("rm", "-y", "smollm2")
    assert (done.returncode, done.stderr) == (
        1,
        "hipfire: smollm2:135m is not installed (hipfire pull smollm2:135m)\n",
    )
