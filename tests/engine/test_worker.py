"""The worker's threads and streams, in this process, on a scripted device."""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Iterator

import pytest
from engine_harness import request
from scripted_device import ScriptedDevice, counting, scripted_loader

from hipfire import __version__
from hipfire.engine.worker import Worker
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Failed,
    Finished,
    FromEngine,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    Sampling,
    Started,
    ToEngine,
    Token,
    Unloaded,
)

PATIENCE_S = 20
"""A test that waits this long has failed; none does otherwise."""


class Gate:
    """A hook that holds a step until it is opened or the step is broken off."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def __call__(self, step, cancel) -> None:
        self.entered.set()
        while not self.opened.wait(0.001) and not cancel.is_set():
            pass


class Peer:
    """The other end of a worker's streams."""

    def __init__(self, device: ScriptedDevice, *, heartbeat_s: float = 3600.0) -> None:
        from_peer, to_worker = os.pipe()
        from_worker, to_peer = os.pipe()
        self._to_worker = os.fdopen(to_worker, "wb", buffering=0)
        self._from_worker = os.fdopen(from_worker, "rb", buffering=0)
        self._streams = (os.fdopen(from_peer, "rb"), os.fdopen(to_peer, "wb"))
        self._rest = b""
        self._status: list[int] = []
        worker = Worker(
            stdin=self._streams[0],
            stdout=self._streams[1],
            loader=scripted_loader(device, context_length=1000),
            heartbeat_s=heartbeat_s,
            grace_s=0.05,
        )
        self._thread = threading.Thread(target=lambda: self._status.append(worker.run()))
        self._thread.start()

    def send(self, *messages: ToEngine) -> None:
        self.write(b"".join(map(encode, messages)))

    def write(self, data: bytes) -> None:
        self._to_worker.write(data)

    def receive(self) -> FromEngine:
        while b"\n" not in self._rest:
            readable, _, _ = select.select([self._from_worker], [], [], PATIENCE_S)
            assert readable, "the worker says nothing"
            chunk = self._from_worker.read(1 << 16)
            assert chunk, "the worker's stream has ended"
            self._rest += chunk
        line, _, self._rest = self._rest.partition(b"\n")
        return decode(line)

    def receive_until(self, kind: type) -> list[FromEngine]:
        """Everything up to and with the first message of a kind."""
        received: list[FromEngine] = []
        while not received or not isinstance(received[-1], kind):
            received.append(self.receive())
        return received

    def load(self) -> None:
        self.send(Load(path="scripted"))
        self.receive_until(Loaded)

    def close_stdin(self) -> None:
        self._to_worker.close()

    def close_stdout(self) -> None:
        self._from_worker.close()

    def status(self) -> int:
        """Wait for the worker's end."""
        self._thread.join(PATIENCE_S)
        (status,) = self._status
        return status

    def close(self) -> None:
        self.close_stdin()
        self._thread.join(PATIENCE_S)
        self.close_stdout()
        for stream in self._streams:
            # What the worker could not write is of no interest.
            with contextlib.suppress(BrokenPipeError):
                stream.close()


@pytest.fixture
def device() -> ScriptedDevice:
    return ScriptedDevice(counting)


@pytest.fixture
def peer(device: ScriptedDevice) -> Iterator[Peer]:
    with contextlib.closing(Peer(device)) as peer:
        yield peer


def test_the_first_message_is_hello(peer):
    assert peer.receive() == Hello(pid=os.getpid(), version=__version__)


def test_a_request_over_the_streams(peer):
    peer.load()
    peer.send(request("a", 1, max_tokens=3))
    started, *tokens, end = peer.receive_until(Finished)
    assert started == Started(id="a", n_cached=0)
    assert tokens == [Token(id="a", token=token) for token in (2, 3, 4)]
    assert end.reason == "length"


def test_messages_may_come_in_any_pieces(peer):
    peer.load()
    data = encode(request("a", 1, max_tokens=1)) + encode(Cancel(id="x")) + encode(request("b", 1, max_tokens=1))
    for i in range(0, len(data), 7):
        peer.write(data[i : i + 7])
    assert [message.id for message in peer.receive_until(Finished)] == ["a"] * 3
    assert [message.id for message in peer.receive_until(Finished)] == ["b"] * 3


def test_cancel_in_the_middle_of_a_step_is_answered_at_once(peer, device):
    peer.load()
    device.hook = gate = Gate()
    peer.send(request("a", 1))
    assert isinstance(peer.receive(), Started)
    assert gate.entered.wait(PATIENCE_S)
    peer.send(Cancel(id="a"))
    assert peer.receive() == Cancelled(id="a", n_generated=0)
    assert not gate.opened.is_set()


def test_the_end_of_stdin_ends_an_idle_worker(peer):
    peer.load()
    peer.close_stdin()
    assert peer.status() == 0


def test_the_end_of_stdin_breaks_off_a_step(peer, device):
    peer.load()
    device.hook = gate = Gate()
    peer.send(request("a", 1))
    assert gate.entered.wait(PATIENCE_S)
    peer.close_stdin()
    assert peer.status() == 0
    assert not gate.opened.is_set()


def test_the_end_of_stdin_does_not_wait_for_a_load(peer, device, monkeypatch):
    loading, never = threading.Event(), threading.Event()

    def load(*args, **kwargs):
        loading.set()
        never.wait(PATIENCE_S)
        raise MemoryError

    monkeypatch.setattr(device, "load", load)
    peer.send(Load(path="scripted"))
    assert loading.wait(PATIENCE_S)
    peer.close_stdin()
    assert peer.status() == 0
    assert not never.is_set()
    never.set()


def test_half_a_message_at_the_end_is_no_error(peer, caplog):
    peer.write(b'{"type":"unl')
    peer.close_stdin()
    assert peer.status() == 0
    assert caplog.records == []


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"type":"unload","now":true}\n', encode(Unloaded())])
def test_what_is_no_message_for_the_engine_ends_it(peer, caplog, line):
    peer.write(line)
    assert peer.status() == 1
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert record.exc_info is None


def test_a_reader_that_is_gone_ends_it(peer):
    peer.receive()
    peer.close_stdout()
    peer.send(Load(path="scripted"))
    assert peer.status() == 0


def test_a_reader_that_does_not_read_holds_nothing_up(peer, device):
    peer.load()
    peer.send(request("a", 1, max_tokens=400, sampling=Sampling(n_logprobs=20)))
    done = threading.Event()
    device.hook = lambda step, cancel: done.set() if len(device.loaded[0].steps) == 400 else None
    # More than the pipe holds, and nobody has read yet.
    assert done.wait(PATIENCE_S)
    assert len(peer.receive_until(Finished)) == 402


def test_a_bug_ends_it_and_is_in_the_log(peer, device, caplog):
    peer.load()

    def fail(step, cancel):
        raise RuntimeError("a bug")

    device.hook = fail
    peer.send(request("a", 1))
    assert peer.status() == 1
    assert "a bug" in caplog.text


def test_an_expected_error_does_not(peer):
    peer.load()
    peer.send(request("a"), request("b", 1, max_tokens=1))
    assert isinstance(peer.receive(), Failed)
    assert isinstance(peer.receive_until(Finished)[-1], Finished)


def test_heartbeats_tell_the_age_of_the_step_under_way(device):
    with contextlib.closing(Peer(device, heartbeat_s=0.005)) as peer:
        assert peer.receive_until(Heartbeat)[-1] == Heartbeat(busy_s=0.0)
        peer.load()
        device.hook = gate = Gate()
        peer.send(request("a", 1, max_tokens=1))
        assert gate.entered.wait(PATIENCE_S)
        ages: list[float] = []
        while len(ages) < 3:
            age = peer.receive_until(Heartbeat)[-1].busy_s
            if age > 0:
                ages.append(age)
        assert ages == sorted(ages)
        assert ages[-1] >= 0.01
        gate.opened.set()
        peer.receive_until(Finished)
        started = time.monotonic()
        while peer.receive_until(Heartbeat)[-1].busy_s > 0:
            assert time.monotonic() < started + PATIENCE_S
