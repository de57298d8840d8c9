import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve, read_until

from hipfire.cli.run import Answer

pytestmark = pytest.mark.slow  # an engine starts


def test_an_answer_and_nothing_else_goes_to_stdout(program: Program) -> None:
    done = program.run("run", str(TINY), "-t", "0", "-n", "8", "Hello")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()
    assert program.processes() == []


def test_a_seed_makes_it_repeatable_and_pieces_make_the_whole(program: Program) -> None:
    args = ["run", str(TINY), "-t", "1", "-n", "20", "--seed", "7", "Hello"]
    streamed = program.run(*args).stdout
    assert program.run(*args, "--no-stream").stdout == streamed
    assert json.loads(program.run(*args, "--json").stdout)["text"] == streamed.removesuffix("\n")


def test_json_is_one_document(program: Program) -> None:
    done = program.run("run", str(TINY), "--json", "-n", "5", "-t", "0", "Hello")
    document = json.loads(done.stdout)
    assert (document["model"], document["finish_reason"]) == (str(TINY), "length")
    assert document["usage"]["completion_tokens"] == 5
    assert document["timings"]["decode_tok_s"] > 0


def test_a_prompt_may_be_piped_in(program: Program) -> None:
    done = program.run("run", str(TINY), "-n", "3", stdin="Hello\n")
    assert done.returncode == 0
    assert done.stdout.strip()


def test_an_interrupt_stops_the_answer_and_leaves_no_process(program: Program) -> None:
    # The reference device is slow enough to be interrupted.
    process = program.start("run", str(TINY), "-t", "0", "Hello", HIPFIRE_DEVICE="reference")
    assert process.stdout is not None
    assert process.stdout.read(1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=TIMEOUT_S) == 130
    assert process.stderr is not None
    assert process.stderr.read().strip() == ""
    assert program.processes() == []


def test_a_serve_that_is_up_answers(shared_serve: Serve) -> None:
    args = ["run", str(TINY), "-t", "0", "-n", "8", "Hello"]
    through = shared_serve.program.run(*args)
    assert (through.returncode, through.stderr) == (0, "")
    assert "200" in read_until(shared_serve.process, "/v1/chat/completions")
    assert shared_serve.program.run(*args, HIPFIRE_LOCAL="1").stdout == through.stdout
    document = json.loads(shared_serve.program.run(*args, "--json").stdout)
    assert document["text"] == through.stdout.removesuffix("\n")
    assert document["timings"]["decode_tok_s"] > 0


def test_an_interrupt_stops_the_serve_s_answer_too(slow_serve: Serve) -> None:
    run = slow_serve.program.start("run", str(TINY), "Hello")
    assert run.stdout is not None
    assert run.stdout.read(1)
    run.send_signal(signal.SIGINT)
    assert run.wait(timeout=TIMEOUT_S) == 130
    assert "broken off" in read_until(slow_serve.process, "/v1/chat/completions")


def test_wishes_about_reasoning_reach_whoever_answers(shared_serve: Serve) -> None:
    args = ["run", str(TINY), "-t", "0", "-n", "8", "--no-think", "--effort", "low", "Hello"]
    through, local = shared_serve.program.run(*args), shared_serve.program.run(*args, HIPFIRE_LOCAL="1")
    assert (through.returncode, through.stdout) == (0, local.stdout)
    assert through.stderr == local.stderr
    for field in ("thinking", "reasoning_effort"):
        assert f"({field}: dropped, {TINY} does not reason)\n" in through.stderr


def test_a_flag_about_loading_asks_for_an_engine_of_one_s_own(shared_serve: Serve) -> None:
    program, url = shared_serve.program, f"http://127.0.0.1:{shared_serve.port}/stats"
    before = httpx.get(url, trust_env=False).json()["requests"]
    assert program.run("run", str(TINY), "--max-seq", "512", "-n", "2", "Hello").returncode == 0
    assert httpx.get(url, trust_env=False).json()["requests"] == before
    assert program.run("run", str(TINY), "-n", "2", "Hello").returncode == 0
    assert httpx.get(url, trust_env=False).json()["requests"]["served"] == before["served"] + 1


def test_reasoning_goes_to_a_terminal_alone_and_dimmed(capsys: pytest.CaptureFixture[str]) -> None:
    answer = Answer(shows=True)
    answer.on_reasoning("Hm.")
    answer.on_text("Yes.")
    assert capsys.readouterr() == ("Yes.", "")


def test_an_answer_that_cannot_be_written_is_one_line(shared_serve: Serve) -> None:
    for local in ("1", "0"):
        with Path("/dev/full").open("w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "hipfire", "run", str(TINY), "-n", "4", "Hello"],
                env={**shared_serve.program.variables, "HIPFIRE_LOCAL": local},
                stdout=full,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
        assert (done.returncode, done.stderr) == (1, "hipfire: cannot write the output: No space left on device\n")


def test_a_serve_that_fails_the_request_is_an_error(shared_serve: Serve) -> None:
    done = shared_serve.program.run("run", "nothing", "Hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hipfire: the serve at http://127.0.0.1:")
    assert "there is no model 'nothing'" in done.stderr


def test_a_port_that_does_not_answer_is_no_serve(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        done = program.run("run", str(TINY), "-n", "1", "Hello", HIPFIRE_PORT=str(listener.getsockname()[1]))
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        ([str(TINY)], 2, "nothing is asked: give a prompt, or pipe one in (see hipfire run --help)"),
        (
            [str(TINY), "--image", "cat.png", "Hello"],
            1,
            f"--image: {TINY} reads text alone, as all models of this build do",
        ),
        ([str(TINY), "--effort", "huge", "Hello"], 2, "invalid value for '--effort': it must be one of auto, none, "),
        (["nothing", "Hello"], 1, "there is no model 'nothing' (nothing is installed; "),
        (["./no.gguf", "Hello"], 1, "./no.gguf does not exist (check the path; hipfire list shows what is here)"),
        (
            [str(TINY), "-t", "9", "Hello"],
            2,
            "invalid value for '-t' / '--temperature': it must be a number from 0 to 2",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_line(args: list[str], status: int, error: str, program: Program) -> None:
    done = program.run("run", *args)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith(f"hipfire: {error}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["./notes.gguf", "./README.md", "README.md"])
def test_a_file_that_is_no_model_is_one_line(name: str, program: Program) -> None:
    path = program.home / name
    path.write_text("These are notes.")
    done = program.run("run", name, "Hello")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"hipfire: {path} is no GGUF file (give the path of a .gguf file)\n"
