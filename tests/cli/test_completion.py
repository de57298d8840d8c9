import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from real_program import Program
from terminal import in_terminal


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


def test_choices_and_short_keys_are_completed(program: Program) -> None:
    assert completions(program, "run", "--effort", "me") == ["medium"]
    assert completions(program, "serve", "--device", "re") == ["reference"]
    assert completions(program, "config", "set", "por") == ["port"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("typed", "line"),
    [
        ("hipfire run smollm2:\t", "hipfire run smollm2:135m "),
        ("hipfire run smollm2:13\t", "hipfire run smollm2:135m "),
        ("hipfire run smollm\t", "hipfire run smollm2:135m "),
        ("hipfire run smollm2:135m --eff\t", "hipfire run smollm2:135m --effort "),
        ("hipfire run smollm2:135m --effort=me\t", "hipfire run smollm2:135m --effort=medium "),
        ("hipfire config smollm2:135m exp\t", "hipfire config smollm2:135m explain "),
    ],
)
def test_bash_completes_words_with_colons(typed: str, line: str, program: Program, tmp_path: Path) -> None:
    hipfire = tmp_path / "hipfire"
    hipfire.write_text(f'#!/bin/sh\nexec {sys.executable} -m hipfire "$@"\n', encoding="utf-8")
    hipfire.chmod(0o755)
    script = tmp_path / "rc"
    script.write_text("PS1='$ '\nbind 'set enable-bracketed-paste off'\n" + program.run("completion", "bash").stdout)
    variables = {**program.variables, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    bash = ["bash", "--noprofile", "--rcfile", str(script), "-i"]
    with in_terminal(bash, variables=variables, cwd=tmp_path) as terminal:
        terminal.wait_for("$")
        terminal.type(typed)
        # What is typed behind it shows that all of it is there.
        terminal.type("#\n")
        terminal.wait_for(f"{line}#")


def test_an_unknown_shell_is_wrong_use(program: Program) -> None:
    done = program.run("completion", "tcsh")
    assert done.returncode == 2
    assert "'bash', 'zsh', 'fish'" in done.stderr
