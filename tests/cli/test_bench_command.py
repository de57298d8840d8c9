import json
import re
import signal
import time

import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve

from hipfire.service.measurement import Sample

SHORT = ("bench", str(TINY), "-p", "16", "-n", "4")


def test_a_sample_is_its_median_and_its_spread() -> None:
    sample = Sample((90.0, 100.0, 120.0))
    assert (sample.median, sample.spread) == (100.0, 0.3)


@pytest.mark.slow  # an engine starts
def test_json_is_one_document(program: Program) -> None:
    done = program.run(*SHORT, "-r", "3", "--threads", "1", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["model"], document["quant"], document["architecture"]) == (str(TINY), "F32", "llama")
    assert (document["prompt_tokens"], document["answer_tokens"]) == (16, 4)
    assert "1 thread" in document["device"]
    assert document["load_ms"] > 0
    for name in ("prefill_tok_s", "decode_tok_s", "first_token_ms"):
        runs = document[name]["runs"]
        assert len(runs) == 3
        assert min(runs) > 0
        assert document[name]["median"] == sorted(runs)[1]
    assert program.processes() == []


@pytest.mark.slow  # an engine starts
def test_the_table_says_on_what_it_was_measured(shared_serve: Serve) -> None:
    done = shared_serve.program.run(*SHORT, "-r", "1")
    assert (done.returncode, done.stderr) == (
        0,
        f"a serve is up on port {shared_serve.port}; what it does meanwhile makes this slower\n",
    )
    lines = done.stdout.splitlines()
    assert lines[0] == f"{TINY}  F32, 1 MB"
    assert re.fullmatch(r"cpu \(.+ threads?\), q16 KV cache", lines[1])
    assert re.fullmatch(r"loaded in \d+\.\d\d s", lines[2])
    for name in ("prefill +16 ", "decode +4 ", "first token +16 "):
        assert re.search(rf"^{name} +[\d,]+\.\d (tok/s|ms) +0\.0 %", done.stdout, flags=re.MULTILINE)


@pytest.mark.slow  # an engine starts
def test_an_interrupt_leaves_no_process(program: Program) -> None:
    # Slow, and so many runs that it does not end by itself.
    process = program.start(*SHORT, "-r", "1000", "--device", "reference")
    deadline = time.monotonic() + TIMEOUT_S
    while len(program.processes()) < 2 and time.monotonic() < deadline:
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=TIMEOUT_S) == 130
    assert program.processes() == []


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (["nothing"], 1, "there is no model 'nothing'"),
        ([str(TINY), "-r", "0"], 2, "invalid value for '-r' / '--runs': it must be a whole number from 1 to 1000"),
        ([str(TINY), "-n", "1"], 2, "invalid value for '-n' / '--tokens': it must be a whole number from 2 to 1048576"),
        ([str(TINY), "--threads", "0"], 2, "invalid value for '--threads': it must be a whole number from 1 to 1024"),
    ],
)
def test_what_cannot_be_measured_is_one_line(args: list[str], status: int, error: str, program: Program) -> None:
    done = program.run("bench", *args)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1)
    assert done.stderr.startswith(f"hipfire: {error.removesuffix('.')}")
