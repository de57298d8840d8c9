import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from real_program import Program

import hipfire
from hipfire.cli.main import COMMANDS


def test_version(program: Program) -> None:
    done = program.run("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"hipfire {hipfire.__version__}\n", "")


def test_help_lists_every_command_with_examples(program: Program) -> None:
    done = program.run("--help")
    assert done.returncode == 0
    for word in (*COMMANDS, "help", "Examples:"):
        assert f"\n  {word}" in done.stdout or f"\n{word}" in done.stdout
    assert program.run("help").stdout == done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_is_its_own_help(command: str, program: Program) -> None:
    done = program.run("help", command)
    assert done.stdout.startswith(f"Usage: hipfire {command} ")
    assert "\nExamples:\n" in done.stdout


def test_help_of_a_command_of_a_command(program: Program) -> None:
    assert program.run("help", "config", "set").stdout == program.run("config", "set", "--help").stdout
    assert "..." not in program.run("config", "--help").stdout.partition("Commands:")[2]
    assert "..." not in program.run("config", "profile", "--help").stdout.partition("Commands:")[2]


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (
            ["help", "config", "st"],
            "hipfire: there is no command 'st', did you mean set? (see hipfire config --help)\n",
        ),
        (["help", "list", "x"], "hipfire: hipfire list has no commands (see hipfire list --help)\n"),
        (["serve", "--device"], "hipfire: option '--device' requires an argument (see hipfire serve --help)\n"),
        (["srve"], "hipfire: there is no command 'srve', did you mean serve? (see hipfire --help)\n"),
        (["help", "lst"], "hipfire: there is no command 'lst', did you mean list? (see hipfire --help)\n"),
        (["zzz"], "hipfire: there is no command 'zzz' (see hipfire --help)\n"),
        (["list", "--zzz"], "hipfire: no such option '--zzz' (see hipfire list --help)\n"),
        (
            ["serve", "m", "-c", "80"],
            "hipfire: no such option '-c': that is --max-seq (see hipfire serve --help)\n",
        ),
        (["list", "--port"], "hipfire: no such option '--port' (see hipfire list --help)\n"),
        (["pull"], "hipfire: missing argument 'TAG' (see hipfire pull --help)\n"),
    ],
)
def test_wrong_use_is_one_line_and_status_2(args: list[str], error: str, program: Program) -> None:
    done = program.run(*args)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", error)


def test_a_failure_is_one_line_and_status_1(program: Program) -> None:
    done = program.run("pull", "nothing")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "hipfire: the registry has no model 'nothing' (hipfire list -r shows what there is)\n"


def test_a_traceback_comes_only_when_debugging(program: Program) -> None:
    done = program.run("pull", "nothing", HIPFIRE_DEBUG="1")
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ModelNotFound" in done.stderr


def test_a_closed_pipe_is_no_error(program: Program, install: Callable[[str], object]) -> None:
    install("mine.gguf")
    command = [sys.executable, "-m", "hipfire", "list", "--json"]
    listing = subprocess.Popen(command, env=program.variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert listing.stdout is not None
    listing.stdout.close()
    with listing:
        assert listing.stderr is not None
        assert listing.stderr.read() == b""
    assert listing.returncode == 1


@pytest.mark.parametrize("args", [["--version"], ["help"], ["list", "-r"], ["list", "-j"], ["ps", "-j"], ["diag"]])
def test_output_that_does_not_fit_is_one_line(args: list[str], program: Program) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hipfire", *args],
            env=program.variables,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, "hipfire: cannot write the output: No space left on device\n")


def test_a_file_that_the_system_refuses_is_named(program: Program) -> None:
    program.root.mkdir()
    program.root.joinpath("models").write_text("no folder")
    done = program.run("rm", "-y", "mine")
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


@pytest.mark.parametrize("name", ["HIPFIRE_LOCAL", "HIPFIRE_DEBUG"])
def test_a_variable_that_is_neither_true_nor_false_is_an_error(name: str, program: Program) -> None:
    done = program.run("list", **{name: "perhaps"})
    assert (done.returncode, done.stderr) == (1, f"hipfire: {name} must be true or false, not 'perhaps'\n")


def test_errors_are_coloured_on_a_terminal_unless_no_color_says_otherwise(program: Program) -> None:
    written = []
    for variables in ({}, {"NO_COLOR": "1"}):
        with program.in_terminal("nothing", **variables) as terminal:
            assert terminal.wait_for_end() == 2
            assert terminal.text.startswith("hipfire: there is no command 'nothing'")
            written.append(terminal.written)
    assert [text.startswith("\x1b[31m") for text in written] == [True, False]


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys, hipfire.cli.main as main\n"
        "try: main.hipfire(['--help'])\n"
        "except SystemExit: pass\n"
        "sys.exit(sorted({'trio', 'numpy', 'quart', 'httpx', 'rich', 'tokenizers', 'jinja2'} & set(sys.modules)) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
