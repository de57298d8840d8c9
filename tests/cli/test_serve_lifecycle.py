"""The life of a serve, as `hipfire serve` lives it: engines really killed, models really unloaded and switched."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve, free_port, read_until, wait_for_end

from hipfire.lifecycle.procfs import arguments

pytestmark = pytest.mark.slow  # a whole server and its engine start


def get(port: int, path: str) -> Any:
    return httpx.get(f"http://127.0.0.1:{port}{path}", trust_env=False, timeout=TIMEOUT_S).json()


def chat(port: int, **fields: object) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, **fields}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    return httpx.post(url, json=body, trust_env=False, timeout=TIMEOUT_S)


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_an_idle_model_is_unloaded_and_loaded_again(program: Program) -> None:
    port = int(program.variables["HIPFIRE_PORT"])
    process = program.start("serve", "--idle-timeout", "0.3", str(TINY))
    read_until(process, "is unloaded after 0.3 s without a request")
    assert get(port, "/health") | {"pid": 0} == {
        "status": "ok",
        "model": None,
        "loading_model": None,
        "pid": 0,
        "native": None,
    }
    assert chat(port).status_code == 200
    read_until(process, "is unloaded after 0.3 s without a request")


def test_a_busy_model_is_never_unloaded(program: Program) -> None:
    port = int(program.variables["HIPFIRE_PORT"])
    process = program.start("serve", "--idle-timeout", "0.2", str(TINY), HIPFIRE_DEVICE="reference")
    read_until(process, "is unloaded")
    # Far longer than the timeout.
    reply = chat(port, max_tokens=60, temperature=0)
    assert (reply.status_code, reply.json()["usage"]["completion_tokens"] > 1) == (200, True)
    assert reply.json()["hipfire"]["timings"]["decode_ms"] > 0
    assert "POST /v1/chat/completions 200" in read_until(process, "is unloaded")


def test_an_engine_that_dies_is_replaced_and_its_model_loaded_again(slow_serve: Serve) -> None:
    engine = slow_serve.engine
    with slow_serve.answer_under_way() as lines:
        os.kill(engine, signal.SIGKILL)
        (error,) = [line for line in lines if '"error"' in line]
    assert '"engine_unavailable"' in error
    # A request that comes meanwhile waits for the model.
    assert chat(slow_serve.port).status_code == 200
    assert slow_serve.engine != engine
    assert get(slow_serve.port, "/health")["status"] == "ok"


def test_three_deaths_within_a_minute_end_the_serve(serve: Serve) -> None:
    dead: set[int] = set()
    for _ in range(3):
        wait_until(lambda: bool(engines(serve) - dead))
        (engine,) = engines(serve) - dead
        os.kill(engine, signal.SIGKILL)
        dead.add(engine)
    assert serve.process.wait(timeout=TIMEOUT_S) == 1
    assert serve.process.stderr is not None
    last = serve.process.stderr.read().splitlines()[-1]
    assert last == "hipfire: the engine keeps dying (its last words are in the log)"
    assert not serve.pidfile.exists()
    wait_for_end(list(engines(serve)), timeout_s=TIMEOUT_S)


def engines(serve: Serve) -> set[int]:
    """The engines that run now."""
    return {pid for pid in serve.program.processes() if "hipfire.engine.worker" in arguments(pid)}


def test_one_answer_at_a_time_the_others_wait_in_turn(slow_serve: Serve) -> None:
    with slow_serve.answer_under_way() as lines:
        other = threading.Thread(target=chat, args=(slow_serve.port,))
        other.start()
        wait_until(lambda: bool(get(slow_serve.port, "/stats")["queue_depth"] == 1))
        assert get(slow_serve.port, "/stats")["in_flight"] == 1
        os.kill(slow_serve.engine, signal.SIGCONT)
        assert list(lines)[-2] == "data: [DONE]"
        other.join(timeout=TIMEOUT_S)
    assert get(slow_serve.port, "/stats")["requests"]["served"] == 2


def test_two_models_alternate_and_neither_starves(program: Program, install: Callable[[str], Path]) -> None:
    install("one.gguf")
    install("two.gguf")
    port = free_port()
    # The reference device is slow enough for others to come in during an answer.
    process = program.start("serve", "one", str(port), HIPFIRE_DEVICE="reference")
    read_until(process, "stop it")
    replies: list[str] = []

    def ask(model: str) -> None:
        replies.extend(chat(port, model=model).json()["model"] for _ in range(3))

    threads = [threading.Thread(target=ask, args=(model,)) for model in ("one", "two")]
    with Serve(program=program, process=process, port=port).answer_under_way():
        for thread in threads:
            thread.start()
        wait_until(lambda: get(port, "/stats")["queue_depth"] == 2)
    for thread in threads:
        thread.join(timeout=TIMEOUT_S)
    assert sorted(replies) == ["one"] * 3 + ["two"] * 3
    # Three of one and then three of the other would be one of them waiting for all of the other's.
    assert replies not in (["one"] * 3 + ["two"] * 3, ["two"] * 3 + ["one"] * 3)


def test_what_does_not_finish_in_time_is_cut_off_at_a_stop(program: Program) -> None:
    port = free_port()
    variables = {"HIPFIRE_DEVICE": "reference", "HIPFIRE_TEMPERATURE": "0", "HIPFIRE_DRAIN_TIMEOUT": "0.1"}
    process = program.start("serve", str(TINY), str(port), **variables)
    read_until(process, "stop it")
    with Serve(program=program, process=process, port=port).answer_under_way() as lines:
        process.send_signal(signal.SIGTERM)
        assert any('"error"' in line for line in lines)
    assert process.wait(timeout=TIMEOUT_S) == 0
    assert not (program.root / "serve.pid").exists()


def test_a_serve_without_a_model_takes_the_one_that_is_set(program: Program) -> None:
    port = free_port()
    process = program.start("serve", str(port), HIPFIRE_MODEL=str(TINY))
    assert f"{TINY} is ready" in read_until(process, "is ready")
