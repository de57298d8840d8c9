"""The engine as a real process on a real, tiny model."""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine_harness import request

from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Finished,
    FromEngine,
    Generate,
    Hello,
    Load,
    Loaded,
    LoadFailed,
    Sampling,
    ToEngine,
    Token,
    Unload,
    Unloaded,
)

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "tiny-llama"
COMMAND = [sys.executable, "-m", "hipfire.engine.worker"]

SAMPLING = Sampling(temperature=0.9, seed=3, n_logprobs=3)

PATIENCE_S = 20
PROMPTLY_S = 2.0
"""Far above what it takes, for machines that are busy with other things."""


class EngineProcess:
    """`stderr` goes to a file, to be looked at after the end."""

    def __init__(self, stderr: Path) -> None:
        self._log = stderr
        with stderr.open("wb") as log:
            self.process = subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)

    def send(self, *messages: ToEngine) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"".join(map(encode, messages)))
        self.process.stdin.flush()

    def receive_until(self, *kinds: type) -> list[FromEngine]:
        assert self.process.stdout is not None
        received: list[FromEngine] = []
        while not received or not isinstance(received[-1], kinds):
            line = self.process.stdout.readline()
            assert line, f"the engine has ended: {self.log()}"
            received.append(decode(line))
        return received

    def load(self, *, device: str = "reference", **options: int) -> Loaded:
        self.send(Load(path=str(FIXTURE / "model.gguf"), device=device, **options))
        loaded = self.receive_until(Loaded, LoadFailed)[-1]
        assert isinstance(loaded, Loaded)
        return loaded

    def generate(self, *asked: Generate) -> dict[str, list[Token]]:
        """Each answer's tokens by id."""
        self.send(*asked)
        answers: dict[str, list[Token]] = {one.id: [] for one in asked}
        for _ in asked:
            for message in self.receive_until(Finished):
                if isinstance(message, Token):
                    answers[message.id].append(message)
        return answers

    def wait(self) -> int:
        return self.process.wait(PATIENCE_S)

    def log(self) -> str:
        return self._log.read_text()

    def close(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()
        self.process.wait()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineProcess]:
    """One for the tests that leave it as they found it."""
    with contextlib.closing(EngineProcess(tmp_path_factory.mktemp("engine") / "log")) as engine:
        yield engine


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[EngineProcess]:
    with contextlib.closing(EngineProcess(tmp_path / "log")) as engine:
        yield engine


def reference() -> dict[str, list[int]]:
    return json.loads((FIXTURE / "ref.json").read_text())


def test_greedy_tokens_are_those_of_the_reference(engine):
    loaded = engine.load()
    assert loaded.architecture == "llama"
    assert loaded.device.startswith("reference")
    assert loaded.kv_cache == "f32"
    expected = reference()
    asked = request("a", *expected["input_ids"], max_tokens=len(expected["generated"]))
    assert [token.token for token in engine.generate(asked)["a"]] == expected["generated"]


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_batched_answers_are_bit_for_bit_those_of_one_at_a_time(engine, device):
    """Log probabilities included: a row's bits do not depend on what shares its step."""
    ids = reference()["input_ids"]
    asked = [request(f"r{n}", *ids[:n], max_tokens=12, sampling=SAMPLING) for n in (1, 5, 24)]
    engine.load(device=device, max_concurrent=1)
    alone = {one.id: engine.generate(one)[one.id] for one in asked}
    engine.load(device=device, max_concurrent=3)
    assert engine.generate(*asked) == alone


@pytest.mark.parametrize("device", ["reference", "cpu"])
def test_prompts_that_are_cancelled_at_any_moment_do_not_change_another_answer(engine, device):
    asked = request("a", *reference()["input_ids"], max_tokens=40, sampling=SAMPLING)
    engine.load(device=device, max_concurrent=2)
    alone = engine.generate(asked)["a"]
    engine.send(asked)
    received = []
    for i in range(10):
        engine.send(request(f"b{i}", *range(3, 450), max_tokens=50))
        # Its prompt has begun, or is about to: where in a step the Cancel arrives, nobody knows.
        received += engine.receive_until(Token)
        engine.send(Cancel(id=f"b{i}"))
    ends = [message.id for message in received if isinstance(message, Cancelled | Finished)]
    while len(ends) < 11:
        received += engine.receive_until(Cancelled, Finished)
        ends.append(received[-1].id)
    assert [message for message in received if isinstance(message, Token) and message.id == "a"] == alone
    assert sorted(ends) == ["a", *(f"b{i}" for i in range(10))]


def test_a_file_that_is_none_is_an_answer_and_a_line_in_the_log(engine, tmp_path):
    broken = tmp_path / "broken\nname.gguf"
    broken.write_bytes(b"GGUF")
    for path in (broken, tmp_path / "missing.gguf"):
        engine.send(Load(path=str(path)))
        assert isinstance(engine.receive_until(Loaded, LoadFailed)[-1], LoadFailed)
    assert all(line.split(" ")[0] in {"INFO", "WARNING", "ERROR"} for line in engine.log().splitlines())


def test_a_trained_context_is_the_default_and_a_wish_is_granted(engine):
    assert engine.load().context_length == 512
    assert engine.load(max_seq=100).context_length == 100


def test_an_interrupt_is_ignored(engine):
    engine.process.send_signal(signal.SIGINT)
    assert engine.load().native is False


def test_the_end_of_stdin_ends_it_while_it_generates(own_engine):
    own_engine.load()
    own_engine.send(request("a", 1, max_tokens=500))
    own_engine.receive_until(Token)
    started = time.monotonic()
    own_engine.process.stdin.close()
    assert own_engine.wait() == 0
    assert time.monotonic() - started < PROMPTLY_S


def test_terminating_ends_it(own_engine):
    own_engine.receive_until(Hello)
    own_engine.process.terminate()
    assert own_engine.wait() == -signal.SIGTERM


PARENT = """
import subprocess, sys
engine = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(engine.stdout.readline().decode(), flush=True)
engine.wait()
"""


def test_killing_its_parent_leaves_no_process():
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *COMMAND], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert parent.stdout is not None
    assert isinstance(decode(parent.stdout.readline()), Hello)
    parent.kill()
    # The engine has its parent's stderr: this pipe is read to its end only once both are gone.
    _, stderr = parent.communicate(timeout=PATIENCE_S)
    assert stderr == b""
    assert parent.returncode == -signal.SIGKILL


def test_ctrl_c_is_for_the_server_to_handle(own_engine: EngineProcess) -> None:
    own_engine.receive_until(Hello)
    own_engine.process.send_signal(signal.SIGINT)
    own_engine.send(Unload())
    assert own_engine.receive_until(Unloaded)[-1] == Unloaded()
    assert own_engine.process.poll() is None


NOISY = """
from hipfire.engine import worker

class Noisy:
    def __init__(self, *, stdout, **_):
        self.stdout = stdout
    def run(self):
        print("a library's chatter", flush=True)
        self.stdout.write(b"a message")
        self.stdout.flush()
        return 7

worker.Worker = Noisy
worker.main()
"""


def test_what_is_printed_does_not_get_among_the_messages() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, check=False, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout, done.stderr) == (7, b"a message", b"a library's chatter\n")
