import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest

from hipfire.errors import BindError
from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.pidfile import Serving, pidfile, read_pidfile
from hipfire.lifecycle.port import bind
from hipfire.lifecycle.procfs import start_time

A, B = Endpoint(host="a", port=1), Endpoint(host="b", port=2)


@pytest.fixture
def cleanup() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


HOME = Path("/nowhere")
"""A state root that nothing runs of."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_a_bound_port_takes_connections_at_once(cleanup: ExitStack) -> None:
    port = free_port()
    (listener,) = bind("127.0.0.1", port, home=HOME)
    cleanup.callback(listener.close)
    cleanup.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))


def test_a_port_in_use_is_said_so(cleanup: ExitStack) -> None:
    port = free_port()
    for listener in bind("127.0.0.1", port, home=HOME):
        cleanup.callback(listener.close)
    with pytest.raises(BindError, match=rf"127\.0\.0\.1 port {port} is in use \(another serve\?"):
        bind("127.0.0.1", port, home=HOME)


def test_a_port_whose_connections_linger_may_be_taken_again(cleanup: ExitStack) -> None:
    port = free_port()
    (listener,) = bind("127.0.0.1", port, home=HOME)
    client = cleanup.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
    accepted, _ = listener.accept()
    accepted.close()
    listener.close()
    client.recv(1)
    for again in bind("127.0.0.1", port, home=HOME):
        cleanup.callback(again.close)


def test_localhost_is_every_loopback_address(cleanup: ExitStack) -> None:
    port = free_port()
    listeners = bind("localhost", port, home=HOME)
    for listener in listeners:
        cleanup.callback(listener.close)
    known = {info[4][0] for info in socket.getaddrinfo("localhost", port, type=socket.SOCK_STREAM)}
    assert {listener.getsockname()[0] for listener in listeners} == known


@pytest.mark.parametrize("host", ["two..dots", "203.0.113.1"])
def test_a_host_that_is_not_this_machine_is_refused(host: str) -> None:
    with pytest.raises(BindError):
        bind(host, free_port(), home=HOME)


def test_the_pidfile_tells_who_serves_and_goes_in_the_end(tmp_path: Path) -> None:
    path = tmp_path / "new" / "serve.pid"
    with pidfile(path, Endpoint(host="::1", port=80)):
        serving = read_pidfile(path)
        assert serving is not None
        assert (serving.pid, serving.host, serving.port) == (os.getpid(), "::1", 80)
        assert serving.alive
    assert list(path.parent.iterdir()) == []


def test_another_serve_s_pidfile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "serve.pid"
    with pidfile(path, A), pidfile(path, B):
        pass
    with pidfile(path, A):
        path.write_text('{"pid": 1, "started": 2, "host": "b", "port": 2}')
    assert read_pidfile(path) == Serving(pid=1, started=2, host="b", port=2)


@pytest.mark.parametrize("text", ["", "123", "{}", '{"pid": 1}', "[1, 2]", "\0"])
def test_a_file_of_something_else_says_nothing(text: str, tmp_path: Path) -> None:
    path = tmp_path / "serve.pid"
    path.write_text(text)
    assert read_pidfile(path) is None


def test_a_process_of_the_same_number_but_another_start_is_a_stranger() -> None:
    own = Serving(pid=os.getpid(), started=start_time(os.getpid()) or 0, host="", port=1)
    assert own.alive
    assert not attrs.evolve(own, started=own.started + 1).alive
    assert not attrs.evolve(own, pid=2**22 + 1).alive
