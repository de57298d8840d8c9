import logging

import pytest
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import some_settings, tokens_of

from hipfire.catalog.store import Store
from hipfire.server.keys import ApiKeys

KEY, OTHER = "sk-first-of-all", "sk-another-one"
SETTINGS = some_settings(serve={"api_keys": (KEY, OTHER)})


def bearing(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("key", [KEY, OTHER])
async def test_each_of_the_keys_will_do(store: Store, key: str) -> None:
    async with scripted_server(store, Script(tokens=tokens_of("Hello")), settings=SETTINGS) as server:
        for path in ("/v1/models", "/stats"):
            assert (await server.client.get(path, headers=bearing(key))).status_code == 200
        answer = await server.client.post("/v1/chat/completions", json=a_chat(), headers=bearing(key))
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearing(KEY[:-1]),
        bearing(KEY + "x"),
        bearing(KEY.upper()),
        bearing(f"{KEY},{OTHER}"),
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"Authorization": "Bearer"},
        {"Authorization": b"Bearer \xff\xfe"},
        {"X-Api-Key": KEY},
    ],
)
async def test_anything_else_is_refused(store: Store, headers: dict[str, str]) -> None:
    async with scripted_server(store, Script(tokens=tokens_of("Hello")), settings=SETTINGS) as server:
        for method, path in (
            ("GET", "/v1/models"),
            ("GET", "/stats"),
            ("HEAD", "/stats"),
            ("GET", "/nowhere"),
            ("GET", "/health/"),
            ("GET", "/health%2f"),
            ("OPTIONS", "/v1/models"),
            ("POST", "/v1/chat/completions"),
        ):
            response = await server.client.request(method, path, headers=headers, content=b"")
            assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
        error = response.json()["error"]
        assert not server.engine.heard
    assert (error["type"], error["code"], error["param"]) == ("invalid_request_error", "invalid_api_key", None)
    assert KEY not in response.text


@pytest.mark.parametrize(
    ("headers", "message"),
    [
        ({}, "this server needs an API key (send one as Authorization: Bearer KEY)"),
        ({"Authorization": "Bearer"}, "this server needs an API key (send one as Authorization: Bearer KEY)"),
        ({"Authorization": KEY}, "this server needs an API key (send one as Authorization: Bearer KEY)"),
        (bearing(KEY + "x"), "the API key is not one of this server's"),
    ],
)
async def test_a_wrong_key_is_told_from_none(store: Store, headers: dict[str, str], message: str) -> None:
    async with scripted_server(store, Script(tokens=()), settings=SETTINGS) as server:
        response = await server.client.get("/stats", headers=headers)
    assert response.json()["error"]["message"] == message


async def test_health_needs_none(store: Store) -> None:
    async with scripted_server(store, Script(), settings=SETTINGS) as server:
        assert (await server.client.get("/health")).status_code == 200
        assert (await server.client.head("/health")).status_code == 200


async def test_a_key_is_in_no_log(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with scripted_server(store, Script(tokens=tokens_of("Hello")), settings=SETTINGS) as server:
        await server.client.get("/stats", headers=bearing(KEY))
        await server.client.get("/stats", headers=bearing("sk-mistyped"))
    assert "/stats" in caplog.text
    assert KEY not in caplog.text
    assert "mistyped" not in caplog.text
    assert KEY not in repr(SETTINGS)
    assert KEY not in repr(ApiKeys.of([KEY]))


def test_the_scheme_may_be_written_in_any_case() -> None:
    keys = ApiKeys.of([KEY])
    assert keys.admits(f"bearer {KEY}")
    assert keys.admits(f"BEARER  {KEY} ")
    assert not keys.admits(f"token {KEY}")


def test_without_keys_everybody_is_admitted() -> None:
    assert ApiKeys.of([]).admits("")
