import json
import os
import signal
import socket
import time
from contextlib import suppress

import httpx
import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve, free_port, read_until, wait_for_end

pytestmark = pytest.mark.slow  # a whole server and its engine start

# The engine must be gone this soon after its server was killed.
ENGINE_END_S = 5.0


@pytest.fixture
def port() -> int:
    return free_port()


def client_of(serve: Serve) -> httpx.Client:
    return httpx.Client(base_url=f"http://127.0.0.1:{serve.port}", timeout=TIMEOUT_S, trust_env=False)


def chat(client: httpx.Client, **fields: object) -> httpx.Response:
    messages = [{"role": "user", "content": "Hello"}]
    return client.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 8, **fields})


def wait_until_refused(port: int) -> None:
    """Wait until nobody listens on the port, which takes the server a moment after it said that it stops."""
    deadline = time.monotonic() + TIMEOUT_S
    # Reset: the listener was closed with this connection still in its backlog.
    with suppress(ConnectionRefusedError, ConnectionResetError):
        while time.monotonic() < deadline:
            socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S).close()
        raise AssertionError(f"port {port} still takes connections")


def test_it_serves_what_it_was_told_to(shared_serve: Serve) -> None:
    with client_of(shared_serve) as client:
        health = client.get("/health").json()
        assert (health["status"], health["model"], health["pid"]) == ("ok", str(TINY), shared_serve.process.pid)
        reply = chat(client)
        assert (reply.status_code, reply.json()["model"]) == (200, str(TINY))
    assert json.loads(shared_serve.pidfile.read_text())["pid"] == shared_serve.process.pid
    assert "POST /v1/chat/completions 200" in read_until(shared_serve.process, "/v1/chat/completions")


def test_a_second_serve_of_the_port_fails_and_leaves_the_first_alone(shared_serve: Serve) -> None:
    before = shared_serve.pidfile.read_text()
    done = shared_serve.program.run("serve", str(TINY), str(shared_serve.port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hipfire: 127.0.0.1 port {shared_serve.port} is in use (a serve of yours is up there (process"
        f" {shared_serve.process.pid}): hipfire stop {shared_serve.port}, or choose another port)\n"
    )
    assert shared_serve.pidfile.read_text() == before
    with client_of(shared_serve) as client:
        assert client.get("/health").json()["pid"] == shared_serve.process.pid


def test_a_signal_stops_it_cleanly(serve: Serve) -> None:
    serve.process.send_signal(signal.SIGINT)
    assert serve.process.wait(timeout=TIMEOUT_S) == 0
    assert serve.program.processes() == []
    assert not serve.pidfile.exists()


def test_answers_under_way_are_finished_at_a_stop(slow_serve: Serve) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
    with client_of(slow_serve) as client, client.stream("POST", "/v1/chat/completions", json=body) as reply:
        lines = reply.iter_lines()
        next(lines)
        slow_serve.process.send_signal(signal.SIGTERM)
        assert "stopping; 1 under way" in read_until(slow_serve.process, "stopping")
        wait_until_refused(slow_serve.port)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert slow_serve.process.wait(timeout=TIMEOUT_S) == 0


def test_a_second_signal_does_not_wait(slow_serve: Serve) -> None:
    with client_of(slow_serve) as client:
        body = {"messages": [{"role": "user", "content": "Hello"}], "stream": True}
        with client.stream("POST", "/v1/chat/completions", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            slow_serve.process.send_signal(signal.SIGINT)
            read_until(slow_serve.process, "stopping")
            slow_serve.process.send_signal(signal.SIGINT)
            assert slow_serve.process.wait(timeout=TIMEOUT_S) == 1
    assert not slow_serve.pidfile.exists()
    wait_for_end(slow_serve.program.processes(), timeout_s=ENGINE_END_S)


def test_a_killed_serve_leaves_no_engine(serve: Serve) -> None:
    processes = serve.program.processes()
    assert len(processes) == 2
    os.kill(serve.process.pid, signal.SIGKILL)
    serve.process.wait()
    wait_for_end(processes, timeout_s=ENGINE_END_S)
    # What it left behind names a process that is gone; the next serve writes its own.
    assert serve.pidfile.exists()


def test_without_prewarming_the_first_request_loads(program: Program, port: int) -> None:
    process = program.start("serve", "--no-prewarm", str(TINY), f"localhost:{port}")
    read_until(process, "listens on")
    with httpx.Client(base_url=f"http://localhost:{port}", timeout=TIMEOUT_S, trust_env=False) as client:
        assert client.get("/health").json()["model"] is None
        assert chat(client).status_code == 200
        assert client.get("/health").json()["model"] == str(TINY)


@pytest.mark.parametrize(
    ("args", "status", "error"),
    [
        (
            ["nothing"],
            1,
            "there is no model 'nothing' (nothing is installed; hipfire list -r shows what can be pulled)",
        ),
        (["smollm2:136m"], 1, "there is no model 'smollm2:136m' (did you mean smollm2:135m?)"),
        (["70000"], 2, "PORT: serve.port must be a whole number from 1 to 65535, not 70000 (see hipfire serve --help)"),
        (["1", "2"], 2, "there are two ports, 1 and 2 (see hipfire serve --help)"),
        (["--tp", "2"], 1, "--tp 2: this build runs a model on one device (leave --tp out)"),
        (
            ["--tp", "65"],
            2,
            "invalid value for '--tp': it must be a whole number from 1 to 64, not 65 (see hipfire serve --help)",
        ),
        (
            ["203.0.113.1", "9"],
            1,
            "cannot listen on 203.0.113.1 port 9: Cannot assign requested address (it is no address of this machine)",
        ),
    ],
)
def test_what_cannot_be_served_is_one_line(args: list[str], status: int, error: str, program: Program) -> None:
    done = program.run("serve", *args)
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr == f"hipfire: {error}\n"
    assert not (program.home / ".hipfire" / "serve.pid").exists()


def test_a_bad_config_file_is_named_with_its_line(program: Program) -> None:
    config = program.home / ".hipfire" / "config.toml"
    config.parent.mkdir()
    config.write_text("[serve]\nprot = 80\n")
    done = program.run("serve")
    assert done.returncode == 1
    assert done.stderr == f"hipfire: {config}:2: there is no setting serve.prot (did you mean serve.port?)\n"


def test_a_model_that_cannot_be_loaded_is_said_and_the_server_stays(program: Program, port: int) -> None:
    broken = program.home / "broken.gguf"
    broken.write_bytes(TINY.read_bytes()[:-1000])
    process = program.start("serve", str(broken), str(port))
    error = read_until(process, "ends after").splitlines()[-1]
    assert error.count(str(broken)) == 1
    assert (
        read_until(process, "stays up")
        .splitlines()[-1]
        .endswith("the server stays up, and requests for the model try again")
    )
    assert httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).json()["status"] == "ok"
    assert "ends after" in program.ps()[0]["load_error"]
    assert f"failed: {broken} ends after" in program.run("ps").stdout


def test_json_logs_are_one_object_a_line(program: Program, port: int) -> None:
    process = program.start("serve", "--tp", "1", "--json-logs", str(TINY), str(port))
    lines = read_until(process, "is ready")
    httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False)
    lines += read_until(process, "/v1/models")
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    lines += process.stderr.read()
    documents = [json.loads(line) for line in lines.splitlines()]
    assert all({"time", "level", "logger", "message"} <= document.keys() for document in documents)
    (asked,) = [document for document in documents if document.get("method")]
    assert (asked["path"], asked["status"], asked["level"]) == ("/v1/models", 200, "info")


def test_an_engine_logs_in_the_same_format(program: Program, port: int) -> None:
    process = program.start("serve", "--json-logs", str(TINY), str(port), HIPFIRE_LOG_LEVEL="debug")
    loggers = {json.loads(line)["logger"] for line in read_until(process, "is ready").splitlines()}
    assert "hipfire.engine" in loggers


def test_looking_at_it_leaves_no_lines_in_the_log(serve: Serve) -> None:
    assert serve.program.run("ps").returncode == 0
    with client_of(serve) as client:
        client.get("/v1/models")
    assert "/stats" not in read_until(serve.process, "/v1/models")
