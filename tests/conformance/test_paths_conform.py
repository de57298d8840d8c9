"""The paths, `/health`, `/v1/models` and `/stats`. RULES.md names the rest of their rules' tests."""

import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
import trio
from chats import until
from problem_shape import error_of
from scripted_engine import Script
from scripted_server import scripted_server
from scripted_service import TINY, models_in, some_settings, tokens_of
from sockets import connected, read_answer

from hipfire.catalog.store import Store

# What the contract allows.
HEALTH_LIMIT_S = 0.005


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello"), **fields)


@pytest.mark.parametrize(
    "script",
    [
        pytest.param({"prefill_s": 1000}, id="in a prefill"),
        pytest.param({"hold_after": 1}, id="in an answer"),
        pytest.param({"load_s": 1000}, id="in a load"),
        pytest.param({"silent": True, "prefill_s": 1000}, id="that hangs"),
    ],
)
async def test_health_is_quick_whatever_the_engine_is_doing(store: Store, script: dict[str, Any]) -> None:
    """Always 200 while the HTTP process is up, without touching the engine, in under 5 ms."""
    async with (
        scripted_server(store, hello(**script)) as server,
        trio.open_nursery() as nursery,
        connected(server.port) as stream,
    ):
        nursery.start_soon(server.chat)
        await until(lambda: bool(server.engine.heard))
        heard, durations = len(server.engine.heard), []
        for _ in range(10):
            began_at = time.perf_counter()
            await stream.send_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await read_answer(stream)
            durations.append(time.perf_counter() - began_at)
            assert answer.startswith(b"HTTP/1.1 200 ")
        assert len(server.engine.heard) <= heard + 1
        # The best of them: the machine may be busy with something else.
        assert min(durations) < HEALTH_LIMIT_S
        nursery.cancel_scope.cancel()


async def test_health_names_a_load_in_progress(store: Store) -> None:
    """`loading_model` names a load in progress; `model` is null when nothing is loaded."""
    async with scripted_server(store, hello(load_s=1000)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.chat)
        await until(lambda: bool(server.engine.loads()))
        health = (await server.client.get("/health")).json()
        nursery.cancel_scope.cancel()
    assert (health["status"], health["model"], health["loading_model"]) == ("ok", None, "tiny")


async def test_health_says_that_the_engine_is_being_restarted(store: Store) -> None:
    """`restarting` while a crashed engine is respawned and its model reloaded, then `ok` again."""
    async with scripted_server(store, hello()) as server:
        await server.chat()
        server.engine.script.load_s = 0.05
        server.engine.processes[0].kill()
        await until(lambda: server.service.resident is None)
        during = (await server.client.get("/health")).json()
        await until(lambda: server.service.resident is not None)
        after = (await server.client.get("/health")).json()
    assert (during["status"], during["model"]) == ("restarting", None)
    assert (after["status"], after["model"]) == ("ok", "tiny")


@pytest.mark.parametrize("name", ["qwen3:0.6b", "a model", "100%", "größe", "v1.5+q4", "a;b,c@d"])
async def test_any_id_can_be_asked_for(tmp_path: Path, name: str) -> None:
    """GET /v1/models/{id}: one of them, also where its id is url-encoded."""
    async with scripted_server(models_in(tmp_path, name), hello()) as server:
        response = await server.client.get(f"/v1/models/{quote(name, safe='')}")
        assert response.json() == (await server.client.get("/v1/models")).json()["data"][0]
    assert response.json()["id"] == name


@pytest.mark.parametrize("safe", ["", "/"], ids=["slashes encoded", "slashes as they are"])
async def test_an_id_may_have_slashes(store: Store, safe: str) -> None:
    """A model that was loaded by its path is called by it."""
    settings = some_settings(serve={"default_model": str(TINY)})
    async with scripted_server(store, hello(), settings=settings) as server:
        await server.chat()
        first = (await server.client.get("/v1/models")).json()["data"][0]
        response = await server.client.get(f"/v1/models/{quote(str(TINY), safe=safe)}")
    assert (first["id"], first["hipfire"]["loaded"]) == (str(TINY), True)
    assert response.json() == first


async def test_stats_count_what_waits_and_runs(store: Store) -> None:
    """Queue depth and in flight; a request whose client goes is one that was cancelled."""
    async with scripted_server(store, hello(hold_after=1)) as server:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.chat)
            await until(lambda: bool(server.engine.prompts()))
            nursery.start_soon(server.chat)
            await until(lambda: server.service.admission.n_waiting == 1)
            during = (await server.client.get("/stats")).json()
            nursery.cancel_scope.cancel()
        await until(lambda: server.service.stats.n_cancelled == 2 and not server.service.admission.n_running)
        after = (await server.client.get("/stats")).json()
    assert (during["queue_depth"], during["in_flight"]) == (1, 1)
    assert (after["queue_depth"], after["in_flight"]) == (0, 0)
    assert after["requests"] == {"served": 0, "failed": 0, "cancelled": 2}


@pytest.mark.parametrize("path", ["/v1/images/generations", "/v1/images/edits"])
@pytest.mark.parametrize(
    "body",
    [
        {"json": {"model": "tiny", "prompt": "a cat"}},
        {"json": {"prompt": "a cat", "images": []}},
        {"content": b"not JSON"},
        {"files": {"image": b"\x89PNG"}, "data": {"prompt": "a cat"}},
    ],
    ids=["a text model", "images in the body", "no JSON", "multipart"],
)
async def test_images_are_refused_clearly(store: Store, path: str, body: dict[str, Any]) -> None:
    """A text model on the images routes is 400; a feature this build does not have is `unsupported`."""
    async with scripted_server(store, hello()) as server:
        response = await server.client.post(path, **body)
        wrong_method = await server.client.get(path)
        assert not server.engine.heard
    assert (response.status_code, error_of(response)["code"]) == (400, "unsupported")
    assert (wrong_method.status_code, wrong_method.headers["allow"]) == (405, "POST")


async def test_a_websocket_is_no_path_either(store: Store) -> None:
    """Anything else is 404."""
    headers = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }
    async with scripted_server(store, hello()) as server:
        responses: list[httpx.Response] = [
            await server.client.get(path, headers=headers) for path in ("/", "/v1/chat/completions")
        ]
    for response in responses:
        assert response.status_code in (404, 405)
        error_of(response)
