"""A client that goes, at whatever point, frees its place and the engine, and disturbs nobody. Over real sockets."""

import json
from collections.abc import Callable
from typing import Any

import h2.connection
import h2.events
import pytest
import trio
from chats import until
from scripted_engine import Script
from scripted_server import ScriptedServer, a_chat, scripted_server
from scripted_service import some_settings, tokens_of
from sockets import connected

from hipfire.catalog.store import Store

TEXT = "Hello, world!"

both_ways = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of(TEXT), **fields)


def post(*, stream: bool, trailing: bytes = b"") -> bytes:
    body = json.dumps(a_chat(stream=stream)).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    return head + body + trailing


async def come_and_go(server: ScriptedServer, request: bytes, when: Callable[[], bool]) -> None:
    """Send a request, and close the connection when something is so."""
    async with connected(server.port) as stream:
        await stream.send_all(request)
        await until(when)


async def assert_free(server: ScriptedServer) -> None:
    """Nothing runs or waits, and the next client is served."""
    await until(lambda: server.service.admission.n_running == 0)
    assert server.service.admission.n_waiting == 0
    server.engine.script.hold_after = None
    server.engine.script.prefill_s = 0.0
    response = await server.chat()
    assert response.json()["choices"][0]["message"]["content"] == TEXT


@both_ways
@pytest.mark.parametrize("script", [{"prefill_s": 1000}, {"hold_after": 3}], ids=["prefill", "decode"])
@pytest.mark.parametrize("trailing", [b"", b"\r\n"], ids=["", "with a line too many"])
async def test_while_the_engine_works(store: Store, script: dict[str, Any], stream: bool, trailing: bytes) -> None:
    async with scripted_server(store, hello(**script)) as server:
        await come_and_go(server, post(stream=stream, trailing=trailing), lambda: len(server.engine.prompts()) == 1)
        await until(lambda: len(server.engine.cancelled) == 1)
        assert server.engine.cancelled == [server.engine.prompts()[0].id]
        await assert_free(server)
        assert server.service.stats.n_cancelled == 1


@both_ways
async def test_while_it_waits_in_the_queue(store: Store, stream: bool) -> None:
    async with scripted_server(store, hello(hold_after=1)) as server, trio.open_nursery() as nursery:
        nursery.start_soon(server.chat)
        await until(lambda: len(server.engine.prompts()) == 1)
        await come_and_go(server, post(stream=stream), lambda: server.service.admission.n_waiting == 1)
        await until(lambda: server.service.admission.n_waiting == 0)
        # The one that runs is none the worse for it.
        assert server.engine.cancelled == []
        server.engine.script.go.set()
        await until(lambda: server.service.stats.n_served == 1)
        await assert_free(server)


@both_ways
async def test_while_the_model_is_loaded(store: Store, stream: bool) -> None:
    async with scripted_server(store, hello(load_s=0.05)) as server:
        await come_and_go(server, post(stream=stream), lambda: bool(server.engine.loads()))
        await assert_free(server)
        assert len(server.engine.loads()) == 1


async def test_the_next_in_the_queue_runs(store: Store) -> None:
    async with scripted_server(store, hello(hold_after=1)) as server, trio.open_nursery() as nursery:
        async with connected(server.port) as stream:
            await stream.send_all(post(stream=True))
            await until(lambda: len(server.engine.prompts()) == 1)
            nursery.start_soon(server.chat)
            await until(lambda: server.service.admission.n_waiting == 1)
            server.engine.script.hold_after = None
        await until(lambda: server.service.stats.n_served == 1)


async def test_while_the_body_is_on_its_way(store: Store) -> None:
    request = post(stream=False)
    async with scripted_server(store, hello()) as server:
        async with connected(server.port) as stream:
            await stream.send_all(request[:-5])
        await assert_free(server)
        assert len(server.engine.prompts()) == 1


async def test_one_stream_of_many_on_a_connection(store: Store) -> None:
    """With HTTP/2, the end of a stream is not the end of the connection."""
    settings = some_settings(serve={"max_concurrent": 2})
    http2 = h2.connection.H2Connection()
    http2.initiate_connection()
    for id_ in (1, 3):
        http2.send_headers(
            id_,
            [(":method", "POST"), (":path", "/v1/chat/completions"), (":scheme", "http"), (":authority", "localhost")],
        )
        http2.send_data(id_, json.dumps(a_chat(stream=True)).encode(), end_stream=True)
    async with (
        scripted_server(store, hello(hold_after=2), settings=settings) as server,
        connected(server.port) as stream,
    ):
        await stream.send_all(http2.data_to_send())
        await until(lambda: len(server.engine.prompts()) == 2)
        http2.reset_stream(1)
        await stream.send_all(http2.data_to_send())
        await until(lambda: len(server.engine.cancelled) == 1)
        server.engine.script.go.set()
        assert (await http2_bodies(http2, stream, last=3)).endswith(b"data: [DONE]\n\n")
        await assert_free(server)


async def http2_bodies(http2: h2.connection.H2Connection, stream: trio.SocketStream, *, last: int) -> bytes:
    """The bodies of all streams together, until the last one ends."""
    body = b""
    while True:
        for event in http2.receive_data(await stream.receive_some()):
            if isinstance(event, h2.events.DataReceived):
                body += event.data
            elif isinstance(event, h2.events.StreamEnded) and event.stream_id == last:
                return body


async def test_a_client_that_does_not_read_does_not_hold_the_engine(store: Store) -> None:
    script = Script(tokens=tokens_of("x" * 200) * 20_000, context_length=10_000_000)
    settings = some_settings(serve={"stream_stall_timeout": 0.2}, generation={"max_tokens": 393_216})
    async with (
        scripted_server(store, script, settings=settings) as server,
        connected(server.port, receive_buffer=4096) as stream,
    ):
        await stream.send_all(post(stream=True))
        await until(lambda: len(server.engine.prompts()) == 1)
        await until(lambda: server.service.admission.n_running == 0)
