import json
import os
from typing import Any

import httpx
import pytest
import trio
from problem_shape import error_of
from scripted_engine import Script, ScriptedEngine
from scripted_server import ScriptedServer, a_chat, scripted_server
from scripted_service import scripted_service, some_settings, tokens_of
from sockets import connected, exchange, listening_socket, read_to_end

from hipfire.catalog.store import Store
from hipfire.errors import EngineUnavailable
from hipfire.server.app import run_server


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello"), **fields)


class TestHealth:
    async def test_before_and_after_a_load(self, store: Store) -> None:
        async with scripted_server(store, hello()) as server:
            before = (await server.client.get("/health")).json()
            await server.chat()
            after = (await server.client.get("/health")).json()
        idle = {"status": "ok", "model": None, "loading_model": None, "pid": os.getpid(), "native": None}
        assert before == idle
        assert after == {**idle, "model": "tiny", "native": True}

    async def test_while_the_engine_is_at_work(self, store: Store) -> None:
        async with scripted_server(store, hello(hold_after=1)) as server, trio.open_nursery() as nursery:
            nursery.start_soon(server.chat)
            while not server.engine.prompts():
                response = await server.client.get("/health")
                assert response.json()["status"] == "ok"
            nursery.cancel_scope.cancel()


class TestModels:
    async def test_the_list(self, store: Store) -> None:
        (store.models_dir / "broken.gguf").write_bytes(b"nothing of the kind")
        async with scripted_server(store, hello()) as server:
            await server.chat(model="tiny")
            body = (await server.client.get("/v1/models")).json()
        assert body["object"] == "list"
        assert [(model["id"], model["hipfire"]["loaded"]) for model in body["data"]] == [
            ("tiny", True),
            ("other", False),
        ]
        tiny = body["data"][0]
        size = (store.models_dir / "tiny.gguf").stat().st_size
        assert isinstance(tiny.pop("created"), int)
        quant = tiny["hipfire"].pop("quant")
        assert isinstance(quant, str)
        assert tiny == {
            "id": "tiny",
            "object": "model",
            "owned_by": "hipfire",
            "hipfire": {"arch": "llama", "size_bytes": size, "context_length": 256, "loaded": True},
        }

    async def test_one(self, store: Store) -> None:
        async with scripted_server(store, hello()) as server:
            listed = (await server.client.get("/v1/models")).json()["data"]
            assert (await server.client.get("/v1/models/other")).json() == listed[0]
            assert listed[0]["id"] == "other"

    @pytest.mark.parametrize("name", ["nobody", "a/b", "..%2Ftiny.gguf", "%00", "a%0Ab", "x" * 5000])
    async def test_none(self, store: Store, name: str) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.get(f"/v1/models/{name}")
        assert response.status_code == 404
        assert error_of(response)["code"] == "model_not_found"


async def test_stats(store: Store) -> None:
    async with scripted_server(store, hello(n_cached=2)) as server:
        idle = (await server.client.get("/stats")).json()
        await server.chat()
        await server.chat(model="nobody")
        stats = (await server.client.get("/stats")).json()
    assert idle["requests"] == {"served": 0, "failed": 0, "cancelled": 0}
    assert idle["device"] is None
    assert stats.pop("uptime_s") > 0
    (prompt_tok_s,), (decode_tok_s,) = stats.pop("prompt_tok_s"), stats.pop("decode_tok_s")
    assert prompt_tok_s > 0
    assert decode_tok_s > 0
    assert stats == {
        "queue_depth": 0,
        "in_flight": 0,
        "requests": {"served": 1, "failed": 1, "cancelled": 0},
        "prefix_cache": {"hits": 1, "tokens": 2},
        "device": "scripted",
        "memory_bytes": 12345,
        "load_error": None,
    }


async def test_stats_tell_why_the_last_load_failed(store: Store) -> None:
    async with scripted_server(store, hello(fail_load=("out_of_memory", "too big"))) as server:
        await server.chat()
        assert (await server.client.get("/stats")).json()["load_error"] == "too big"
        server.engine.script.fail_load = None
        await server.chat(model="other")
        assert (await server.client.get("/stats")).json()["load_error"] is None


class TestRouting:
    @pytest.mark.parametrize(
        "path",
        ["/", "/v1", "/v1/completions", "/health/", "/v1//models", "/v1/models/", "/static/x", "/%ff", "/favicon.ico"],
    )
    async def test_other_paths_are_not_found(self, store: Store, path: str) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.get(path)
        assert response.status_code == 404
        assert error_of(response)["code"] == "not_found"

    @pytest.mark.parametrize(
        ("path", "message"),
        [
            ("/nowhere", "there is no such path"),
            ("/v1/completions", "there is no such path: use /v1/chat/completions"),
            ("/v1/responses", "there is no such path: use /v1/chat/completions"),
        ],
    )
    async def test_another_api_is_told_of_this_one(self, store: Store, path: str, message: str) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.post(path, json={})
        assert error_of(response)["message"] == message

    @pytest.mark.parametrize(
        ("method", "path", "allowed"),
        [
            ("POST", "/health", "GET, HEAD"),
            ("DELETE", "/v1/models", "GET, HEAD"),
            ("PUT", "/v1/models/tiny", "GET, HEAD"),
            ("GET", "/v1/chat/completions", "POST"),
            ("OPTIONS", "/v1/chat/completions", "POST"),
            ("BREW", "/v1/chat/completions", "POST"),
        ],
    )
    async def test_a_wrong_method_is_told_the_right_one(
        self, store: Store, method: str, path: str, allowed: str
    ) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.request(method, path)
        assert (response.status_code, response.headers["allow"]) == (405, allowed)
        assert error_of(response)["code"] == "method_not_allowed"

    @pytest.mark.parametrize("path", ["/health", "/stats", "/v1/models", "/v1/models/tiny"])
    async def test_head_works_where_get_does(self, store: Store, path: str) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.head(path)
        assert (response.status_code, response.content) == (200, b"")
        assert int(response.headers["content-length"]) > 0


class TestHosts:
    @pytest.mark.parametrize(
        ("host", "status"),
        [
            ("localhost", 200),
            ("LOCALHOST:1", 200),
            ("127.0.0.1:11435", 200),
            ("127.8.9.1", 200),
            ("[::1]:80", 200),
            ("mine.example:80", 200),
            ("evil.example", 403),
            ("evil.example:11435", 403),
            ("127.0.0.1.evil.example", 403),
            ("localhost.evil.example", 403),
            ("192.168.0.1", 403),
        ],
    )
    async def test_only_names_of_this_machine(self, store: Store, host: str, status: int) -> None:
        settings = some_settings(serve={"allowed_hosts": ("Mine.example",)})
        async with scripted_server(store, hello(), settings=settings) as server:
            for path in ("/health", "/nowhere"):
                response = await server.client.get(path, headers={"Host": host})
                assert response.status_code == (404 if status == 200 and path == "/nowhere" else status)
        if status == 403:
            assert error_of(response)["code"] == "forbidden"


class TestBodies:
    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"{",
            b"\xff\xfe\xfa",
            b'{"messages": NaN}',
            b"[" * 100_000,
            b'{"messages": ' + b"1" * 5000 + b"}",
            b"{'messages': []}",
        ],
    )
    async def test_what_is_not_json(self, store: Store, body: bytes) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.post("/v1/chat/completions", content=body)
        assert response.status_code == 400
        assert error_of(response)["code"] == "invalid_json"

    @pytest.mark.parametrize("body", [b"[]", b"null", b'"hi"', b"7"])
    async def test_what_is_no_object(self, store: Store, body: bytes) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.post("/v1/chat/completions", content=body)
        assert response.status_code == 400
        assert error_of(response)["code"] == "invalid_request"

    async def test_a_bad_field_is_named(self, store: Store) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.chat(messages=[{"role": "user", "content": 1}])
        error = error_of(response)
        assert (response.status_code, error["code"], error["param"]) == (400, "invalid_request", "messages[0].content")

    @pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", "nonsense"])
    async def test_any_content_type_will_do(self, store: Store, content_type: str) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.client.post(
                "/v1/chat/completions", content=json.dumps(a_chat()), headers={"Content-Type": content_type}
            )
        assert response.status_code == 200

    async def test_as_large_as_allowed(self, store: Store) -> None:
        body = json.dumps(a_chat()).encode()
        settings = some_settings(serve={"max_request_bytes": len(body)})
        async with scripted_server(store, hello(), settings=settings) as server:
            assert (await server.client.post("/v1/chat/completions", content=body)).status_code == 200
            response = await server.client.post("/v1/chat/completions", content=body + b" ")
        assert response.status_code == 413
        assert error_of(response)["code"] == "request_too_large"

    async def test_too_large_is_said_before_the_body_came_and_before_the_queue(self, store: Store) -> None:
        settings = some_settings(serve={"max_request_bytes": 4096, "max_queue": 1})
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"
        async with (
            scripted_server(store, hello(hold_after=0), settings=settings) as server,
            trio.open_nursery() as nursery,
        ):
            for _ in range(2):
                nursery.start_soon(server.chat)
            async with connected(server.port) as stream:
                await stream.send_all(head)
                assert (await read_to_end(stream)).startswith(b"HTTP/1.1 413 ")
            nursery.cancel_scope.cancel()

    async def test_too_large_is_said_while_it_comes_in_chunks(self, store: Store) -> None:
        settings = some_settings(serve={"max_request_bytes": 4096})
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with (
            scripted_server(store, hello(), settings=settings) as server,
            connected(server.port) as stream,
        ):
            await stream.send_all(head + b"1000\r\n" + b" " * 4096 + b"\r\n")
            with trio.move_on_after(0.05) as patience:
                await stream.receive_some()
            assert patience.cancelled_caught
            await stream.send_all(b"1\r\n \r\n")
            assert (await read_to_end(stream)).startswith(b"HTTP/1.1 413 ")


class TestRefusals:
    @pytest.mark.parametrize("stream", [False, True])
    async def test_an_unknown_model(self, store: Store, stream: bool) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.chat(model="nobody", stream=stream)
        assert response.status_code == 404
        error = error_of(response)
        assert error["code"] == "model_not_found"
        assert "tiny" in error["message"]

    async def test_a_path(self, store: Store) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.chat(model=str(store.models_dir / "tiny.gguf"))
            assert (response.status_code, error_of(response)["code"]) == (404, "model_not_found")
        settings = some_settings(serve={"allow_request_paths": True})
        async with scripted_server(store, hello(), settings=settings) as server:
            assert (await server.chat(model=str(store.models_dir / "tiny.gguf"))).json()["model"] == "tiny"

    @pytest.mark.parametrize("fields", [{"max_tokens": 250}, {"messages": [{"role": "user", "content": "hi " * 300}]}])
    async def test_what_does_not_fit_the_context(self, store: Store, fields: dict[str, Any]) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.chat(**fields)
        assert response.status_code == 400
        error = error_of(response)
        assert error["code"] == "context_length_exceeded"
        assert "256" in error["message"]

    async def test_a_bias_outside_the_vocabulary(self, store: Store) -> None:
        async with scripted_server(store, hello()) as server:
            response = await server.chat(logit_bias={"512": 1})
        assert (response.status_code, error_of(response)["param"]) == (400, "logit_bias.512")

    @pytest.mark.parametrize("stream", [False, True])
    async def test_a_full_queue(self, store: Store, stream: bool) -> None:
        settings = some_settings(serve={"max_queue": 1})
        async with (
            scripted_server(store, hello(hold_after=0), settings=settings) as server,
            trio.open_nursery() as nursery,
        ):
            for _ in range(2):
                nursery.start_soon(server.chat)
            await until_queued(server, 1)
            response = await server.chat(stream=stream)
            assert response.status_code == 503
            assert error_of(response)["code"] == "server_busy"
            assert 1 <= int(response.headers["retry-after"]) <= 60
            nursery.cancel_scope.cancel()


async def kill_three_times(engine: ScriptedEngine) -> None:
    for n in range(3):
        while len(engine.processes) <= n:
            await trio.lowlevel.checkpoint()
        engine.processes[n].kill()


async def until_queued(server: ScriptedServer, n: int) -> None:
    while (await server.client.get("/stats")).json()["queue_depth"] < n:
        pass


class TestShutdown:
    async def test_a_stream_in_flight_finishes(self, store: Store) -> None:
        async with (
            scripted_server(store, hello(hold_after=1)) as server,
            server.client.stream("POST", "/v1/chat/completions", json=a_chat(stream=True)) as response,
        ):
            lines = response.aiter_lines()
            await anext(lines)
            server.shutdown.set()
            server.engine.script.go.set()
            assert [line async for line in lines if line][-1] == "data: [DONE]"
            with pytest.raises(httpx.ConnectError):
                async with httpx.AsyncClient() as client:
                    await client.get(f"{server.url}/health")

    async def test_one_that_does_not_is_told(self, store: Store) -> None:
        settings = some_settings(serve={"drain_timeout": 0.05})
        async with (
            scripted_server(store, hello(hold_after=1), settings=settings) as server,
            server.client.stream("POST", "/v1/chat/completions", json=a_chat(stream=True)) as response,
        ):
            lines = response.aiter_lines()
            await anext(lines)
            server.shutdown.set()
            *_, error, done = [line async for line in lines if line]
        assert json.loads(error.removeprefix("data: "))["error"]["code"] == "engine_unavailable"
        assert done == "data: [DONE]"

    async def test_an_engine_that_keeps_dying_ends_the_server(self, store: Store) -> None:
        settings = some_settings()
        async with scripted_service(store, hello(), settings=settings) as (service, engine):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(kill_three_times, engine)
                with pytest.raises(EngineUnavailable, match="keeps dying"):
                    await run_server(service, [listening_socket()], settings, trio.Event())
            assert service.health().status == "unhealthy"


async def test_bytes_that_are_no_http(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        answer = await exchange(server.port, b"\x16\x03\x01 hello\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request"
