from typing import Any

import httpx
import pytest
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import some_settings, tokens_of
from sockets import exchange

from hipfire.catalog.store import Store

PAGE, STRANGER = "https://app.example", "https://evil.example"
ASKS = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-os"}


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello"), **fields)


def cors_headers(response: httpx.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


@pytest.mark.parametrize("origins", [(PAGE,), ("http://other.example:8080", PAGE), ("*",)])
async def test_a_listed_page_is_told_what_it_may_do(store: Store, origins: tuple[str, ...]) -> None:
    settings = some_settings(serve={"cors_origins": origins, "api_keys": ("k",)})
    async with scripted_server(store, hello(), settings=settings) as server:
        # Without a key: browsers ask without one.
        response = await server.client.options("/v1/chat/completions", headers={"Origin": PAGE, **ASKS})
    assert (response.status_code, response.content) == (204, b"")
    assert response.headers["vary"] == "Origin"
    assert cors_headers(response) == {
        "access-control-allow-origin": PAGE,
        "access-control-allow-methods": "POST",
        "access-control-allow-headers": "authorization, x-stainless-os",
        "access-control-max-age": "600",
        "access-control-expose-headers": "Retry-After",
    }


async def test_the_connection_goes_on_behind_the_question(store: Store) -> None:
    page = f"Host: localhost\r\nOrigin: {PAGE}\r\n"
    asked = f"OPTIONS /v1/models HTTP/1.1\r\n{page}Access-Control-Request-Method: GET\r\n\r\n"
    then = f"GET /health HTTP/1.1\r\n{page}Connection: close\r\n\r\n"
    settings = some_settings(serve={"cors_origins": (PAGE,)})
    async with scripted_server(store, hello(), settings=settings) as server:
        answers = await exchange(server.port, (asked + then).encode())
    assert answers.startswith(b"HTTP/1.1 204 ")
    assert b"HTTP/1.1 200 " in answers
    # What has no body has no type.
    assert answers.partition(b"\r\n\r\n")[0].lower().count(b"content-") == 0


@pytest.mark.parametrize(
    ("origins", "headers"),
    [
        ((), {"Origin": PAGE, **ASKS}),
        ((PAGE,), {"Origin": STRANGER, **ASKS}),
        ((PAGE,), {"Origin": PAGE + ".evil.example", **ASKS}),
        ((PAGE,), {"Origin": "null", **ASKS}),
        ((PAGE,), {"Origin": PAGE}),
        (("*",), ASKS),
    ],
)
async def test_any_other_question_is_a_wrong_method(
    store: Store, origins: tuple[str, ...], headers: dict[str, str]
) -> None:
    settings = some_settings(serve={"cors_origins": origins})
    async with scripted_server(store, hello(), settings=settings) as server:
        response = await server.client.options("/v1/chat/completions", headers=headers)
    assert (response.status_code, response.headers["allow"]) == (405, "POST")
    assert "access-control-allow-methods" not in response.headers


async def test_a_preflight_for_a_path_that_is_not_there(store: Store) -> None:
    settings = some_settings(serve={"cors_origins": (PAGE,)})
    async with scripted_server(store, hello(), settings=settings) as server:
        response = await server.client.options("/v1/nothing", headers={"Origin": PAGE, **ASKS})
    assert response.status_code == 404


async def test_every_answer_names_the_page_that_may_read_it(store: Store) -> None:
    settings = some_settings(serve={"cors_origins": (PAGE,), "api_keys": ("k",)})
    key = {"Authorization": "Bearer k"}
    async with scripted_server(store, hello(), settings=settings) as server:
        for origin, allowed in ((PAGE, PAGE), (STRANGER, None), (None, None)):
            page = {} if origin is None else {"Origin": origin}
            answers = [
                await server.client.get("/health", headers=page),
                await server.client.get("/nowhere", headers={**page, **key}),
                await server.client.get("/stats", headers=page),
                await server.client.post("/v1/chat/completions", json={}, headers={**page, **key}),
                await server.client.post("/v1/chat/completions", json=a_chat(), headers={**page, **key}),
                await server.client.post("/v1/chat/completions", json=a_chat(stream=True), headers={**page, **key}),
            ]
            assert [answer.status_code for answer in answers] == [200, 404, 401, 400, 200, 200]
            for answer in answers:
                assert answer.headers.get("access-control-allow-origin") == allowed
                assert answer.headers["vary"] == "Origin"


async def test_by_default_no_page_is_told_anything(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        response = await server.client.get("/health", headers={"Origin": PAGE})
    assert cors_headers(response) == {}
    assert "vary" not in response.headers


async def test_a_page_may_ask_for_a_server_on_its_own_machine(store: Store) -> None:
    settings = some_settings(serve={"cors_origins": (PAGE,)})
    asks = {"Origin": PAGE, **ASKS, "Access-Control-Request-Private-Network": "true"}
    async with scripted_server(store, hello(), settings=settings) as server:
        response = await server.client.options("/v1/chat/completions", headers=asks)
    assert response.headers["access-control-allow-private-network"] == "true"
