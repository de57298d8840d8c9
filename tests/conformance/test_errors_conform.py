"""The table of errors: status, code and shape, over real sockets."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
from chats import until
from problem_shape import error_of
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import models_in, some_settings, tokens_of
from sockets import exchange

from hipfire.catalog.registry import load_registry
from hipfire.catalog.store import Store


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello"), **fields)


@pytest.mark.parametrize("stream", [False, True])
async def test_what_does_not_fit_is_told_with_both_counts(store: Store, stream: bool) -> None:
    """Prompt longer than the context, or prompt + explicit `max_tokens` does not fit: the message has both counts."""
    async with scripted_server(store, hello()) as server:
        n_prompt = (await server.chat()).json()["usage"]["prompt_tokens"]
        response = await server.chat(max_tokens=256, stream=stream)
        assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
        assert str(n_prompt) in response.text
        assert "256" in response.text
        response = await server.chat(messages=[{"role": "user", "content": "word " * 270}], stream=stream)
        assert (response.status_code, error_of(response)["code"]) == (400, "context_length_exceeded")
        # What is left is not exceeded, to the token.
        assert (await server.chat(max_tokens=256 - n_prompt)).status_code == 200
        assert (await server.chat(max_tokens=256 - n_prompt + 1)).status_code == 400


async def test_a_tag_that_is_not_here_comes_with_its_pull_command(tmp_path: Path) -> None:
    """Model not installed: the message lists `hipfire pull <tag>`."""
    models_in(tmp_path, "tiny")
    async with scripted_server(Store(tmp_path, load_registry()), hello()) as server:
        response = await server.chat(model="smollm2:135m")
    assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")
    assert "hipfire pull smollm2:135m" in error_of(response)["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_waiting_too_long_is_busy(store: Store, stream: bool) -> None:
    """Waited `serve.queue_timeout_ms`: 503 + Retry-After, `server_busy`."""
    settings = some_settings(serve={"queue_timeout_ms": 20})
    async with scripted_server(store, hello(hold_after=0), settings=settings) as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.chat)
        await until(lambda: bool(server.engine.prompts()))
        response = await server.chat(stream=stream)
        nursery.cancel_scope.cancel()
    assert (response.status_code, error_of(response)["code"]) == (503, "server_busy")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_dead_engine_is_unavailable_for_a_second(store: Store, stream: bool) -> None:
    """Engine restarting: 503 + `Retry-After: 1`, `engine_unavailable`."""
    async with scripted_server(store, hello(die_after=0)) as server:
        response = await server.chat(stream=stream)
    assert (response.status_code, error_of(response)["code"]) == (503, "engine_unavailable")
    assert response.headers["retry-after"] == "1"


async def test_anything_else_is_internal_and_says_nothing_of_itself(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    """Anything else: 500 `internal_error`, details in the log only."""
    async with scripted_server(store, hello(fail=("internal_error", "a secret of the engine"))) as server:
        response = await server.chat()
    assert (response.status_code, error_of(response)["code"]) == (500, "internal_error")
    assert "secret" not in response.text
    assert "a secret of the engine" in caplog.text


async def test_a_failure_after_the_first_frame_is_the_last_but_one(store: Store) -> None:
    """A later failure is `data: {"error":{...}}` then `[DONE]`."""
    async with scripted_server(store, hello(fail=("device_error", "out of order"), fail_after=2)) as server:
        response = await server.chat(stream=True)
    *_, error, done, rest = response.text.split("\n\n")
    assert set(json.loads(error.removeprefix("data: "))["error"]) == {"message", "type", "param", "code"}
    assert (response.status_code, done, rest) == (200, "data: [DONE]", "")


async def test_a_refused_model_is_refused_before_the_queue(store: Store) -> None:
    """A model that is not installed waits for nobody's turn."""
    async with scripted_server(store, hello(hold_after=0)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.chat)
        await until(lambda: bool(server.engine.prompts()))
        assert (await server.chat(model="nobody")).status_code == 404
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        (b"nonsense\r\n\r\n", b"400", "not a well-formed HTTP request"),
        (b"GET /health HTTP/1.1\r\n\r\n", b"400", "not a well-formed HTTP request"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nA B: c\r\n\r\n", b"400", "not a well-formed HTTP request"),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
            b"400",
            "not a well-formed HTTP request",
        ),
        (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 70_000 + b"\r\n\r\n",
            b"431",
            "head of this request is too large",
        ),
        (
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip\r\n\r\n",
            b"501",
            "transfer encoding is not supported",
        ),
    ],
    ids=["no request line", "no host", "header name", "length", "too large a head", "an encoding"],
)
async def test_what_is_no_request_gets_json_too(store: Store, request_: bytes, status: bytes, says: str) -> None:
    """Every error body is JSON, never an HTML page and never a Python repr."""
    async with scripted_server(store, hello()) as server:
        head, _, body = (await exchange(server.port, request_)).partition(b"\r\n\r\n")
    assert head.split()[1] == status
    assert b"content-type: application/json" in head.lower()
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
    assert says in json.loads(body)["error"]["message"]


async def test_errors_of_the_framework_have_the_shape_too(store: Store) -> None:
    """Every error body is `{"error":{"message","type","param","code"}}`."""
    async with scripted_server(store, hello()) as server:
        for method, path in (("GET", "/nowhere"), ("DELETE", "/health"), ("TRACE", "/"), ("GET", "/%ff%00")):
            error_of(await server.client.request(method, path))
        for body in (b"", b"[]", b"{", json.dumps(a_chat(max_tokens=0)).encode()):
            error_of(await server.client.post("/v1/chat/completions", content=body))
