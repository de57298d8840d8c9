from collections.abc import Callable
from pathlib import Path

import pytest
from real_program import Program


def completions(program: Program, *words: str) -> list[str]:
    """What bash is offered for the last of these words."""
    line = " ".join(("hipfire", *words))
    done = program.run(_HIPFIRE_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(len(words)))
    return [row.split(",", 1)[1] for row in done.stdout.splitlines()]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_a_script(shell: str, program: Program) -> None:
    done = program.run("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"_HIPFIRE_COMPLETE={shell}_complete" in done.stdout


def test_commands_flags_and_tags_are_completed(program: Program, install: Callable[[str], Path]) -> None:
    install("mine.gguf")
    assert completions(program, "re") == ["restart"]
    assert "--force" in completions(program, "stop", "--f")
    assert completions(program, "rm", "m") == ["mine"]
    assert completions(program, "pull", "smol") == ["smollm2:135m"]
    assert completions(program, "run", "mi") == ["mine"]


def test_an_unknown_shell_is_wrong_use(program: Program) -> None:
    done = program.run("completion", "tcsh")
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
