"""Binds, limits and defaults of the transport. RULES.md names the tests of connections, TLS, keys and CORS."""

import logging
import socket
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import scripted_service, some_settings, tokens_of
from sockets import PATIENCE_S, connected, listening_socket, read_answer

from hipfire.catalog.store import Store
from hipfire.config.schema import Serve
from hipfire.lifecycle.port import bind
from hipfire.server.app import run_server
from hipfire.server.transport import Limits


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]"), ("127.0.0.1",) * 2, ("localhost",) * 2])
async def test_binds(store: Store, host: str, address: str) -> None:
    """IPv4, IPv6 and `localhost` binds."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = some_settings()
    async with scripted_service(store, Script(), settings=settings) as (service, _), trio.open_nursery() as nursery:
        await nursery.start(
            partial(run_server, service, bind(host, port, home=Path("/nowhere")), settings, trio.Event())
        )
        async with httpx.AsyncClient(timeout=PATIENCE_S, verify=False, trust_env=False) as client:
            assert (await client.get(f"http://{address}:{port}/health")).status_code == 200
        nursery.cancel_scope.cancel()


async def test_http2_without_tls_streams(store: Store) -> None:
    """HTTP/1.1 and h2c."""
    async with (
        scripted_server(store, Script(tokens=tokens_of("Hello"))) as server,
        httpx.AsyncClient(base_url=server.url, http1=False, http2=True, verify=False) as client,
    ):
        response = await client.post("/v1/chat/completions", json=a_chat(stream=True))
        await client.aclose()
    assert (response.http_version, response.text[-14:]) == ("HTTP/2", "data: [DONE]\n\n")


def test_defaults() -> None:
    """Default bind is 127.0.0.1; at most 512 connections; a head within 30 s; `serve.stream_stall_timeout` is 30 s;
    no keys, no origins, no TLS.
    """
    serve, limits = Serve(), Limits(stall_timeout_s=1, drain_timeout_s=1)
    assert (serve.host, serve.stream_stall_timeout) == ("127.0.0.1", 30.0)
    assert (limits.max_connections, limits.head_timeout_s) == (512, 30.0)
    assert (serve.api_keys, serve.cors_origins, serve.certfile, serve.keyfile) == ((), (), None, None)


@pytest.mark.parametrize(("keys", "warned"), [((), True), (("k",), False)])
async def test_a_public_bind_without_keys_is_warned_of(
    store: Store, caplog: pytest.LogCaptureFixture, keys: tuple[str, ...], warned: bool
) -> None:
    """A bind beyond loopback without keys logs a warning."""
    caplog.set_level(logging.WARNING)
    settings = some_settings(serve={"api_keys": keys})
    sock = socket.socket()
    sock.bind(("0.0.0.0", 0))
    async with scripted_service(store, Script(), settings=settings) as (service, _), trio.open_nursery() as nursery:
        await nursery.start(partial(run_server, service, [sock], settings, trio.Event()))
        nursery.cancel_scope.cancel()
    assert ("listening beyond this machine" in caplog.text) is warned


async def test_a_public_bind_may_be_called_by_any_name(store: Store) -> None:
    """Only on a loopback bind a request with another `Host` is refused."""
    settings, sock = some_settings(), socket.socket()
    sock.bind(("0.0.0.0", 0))
    async with scripted_service(store, Script(), settings=settings) as (service, _), trio.open_nursery() as nursery:
        await nursery.start(partial(run_server, service, [sock], settings, trio.Event()))
        async with connected(sock.getsockname()[1]) as stream:
            await stream.send_all(b"GET /health HTTP/1.1\r\nHost: machine.example\r\n\r\n")
            assert (await read_answer(stream)).startswith(b"HTTP/1.1 200 ")
        nursery.cancel_scope.cancel()


async def test_a_refused_body_s_connection_says_that_it_ends(store: Store) -> None:
    """Keep-alive: a client is told when its connection is not kept, so it does not send its next request into it."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 5\r\n\r\n"
    async with scripted_server(store, Script()) as server, connected(server.port) as stream:
        await stream.send_all(head)
        answer = await read_answer(stream)
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close" in answer.lower()


async def test_the_configured_host_may_be_called(store: Store) -> None:
    """A request whose `Host` is not a loopback name or the configured host is refused with 403."""
    settings = some_settings(serve={"host": "my-machine"})
    sock = listening_socket()
    async with scripted_service(store, Script(), settings=settings) as (service, _), trio.open_nursery() as nursery:
        await nursery.start(partial(run_server, service, [sock], settings, trio.Event()))
        for host, status in (("my-machine:80", b"200"), ("other-machine", b"403")):
            async with connected(sock.getsockname()[1]) as stream:
                await stream.send_all(f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
                assert (await read_answer(stream)).split()[1] == status
        nursery.cancel_scope.cancel()
