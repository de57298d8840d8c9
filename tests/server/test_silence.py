"""What a client gets while there is nothing to send, on the Trio clock: the application without a socket."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
from scripted_engine import Script
from scripted_server import a_chat
from scripted_service import scripted_service, some_settings, tokens_of
from trio.testing import MockClock

from hipfire.catalog.store import Store
from hipfire.server.app import create_app
from hipfire.server.hosts import HostPolicy


class Exchange:
    """What the application was sent and has sent, with the seconds since the request."""

    def __init__(self, body: bytes, *, complete: bool = True) -> None:
        self._to_app: list[dict[str, object]] = [{"type": "http.request", "body": body, "more_body": not complete}]
        self._began = trio.current_time()
        self.sent: list[tuple[int, Any]] = []

    async def receive(self) -> dict[str, object]:
        if not self._to_app:
            await trio.sleep_forever()
        return self._to_app.pop()

    async def send(self, message: dict[str, Any]) -> None:
        seconds = round(trio.current_time() - self._began)
        if message["type"] == "http.response.start":
            self.sent.append((seconds, message["status"]))
        elif message["body"]:
            self.sent.append((seconds, message["body"]))


@asynccontextmanager
async def asked(store: Store, script: Script, body: bytes, *, complete: bool = True) -> AsyncIterator[Exchange]:
    settings = some_settings()
    async with scripted_service(store, script, settings=settings) as (service, _):
        await service.prewarm()
        app = create_app(service, settings, HostPolicy.for_binds(["127.0.0.1"], []))
        exchange = Exchange(body, complete=complete)
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/v1/chat/completions",
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }
        await app(scope, exchange.receive, exchange.send)
        yield exchange


STREAMED = json.dumps(a_chat(stream=True)).encode()


async def test_the_stream_begins_after_a_while_also_without_text(store: Store, patient_clock: MockClock) -> None:
    async with asked(store, Script(beat_s=10, tokens=tokens_of("x"), prefill_s=40), STREAMED) as exchange:
        (_, status), *frames = exchange.sent
        times = [seconds for seconds, _ in exchange.sent]
    assert status == 200
    assert b'"role":"assistant"' in frames[0][1]
    assert frames[1][1] == b": keepalive\n\n"
    assert b'"content":"x"' in frames[2][1]
    assert times[:4] == [15, 15, 30, 40]


async def test_the_stream_begins_with_the_text_when_that_is_sooner(store: Store, patient_clock: MockClock) -> None:
    async with asked(store, Script(beat_s=10, tokens=tokens_of("x"), prefill_s=10), STREAMED) as exchange:
        pass
    assert [seconds for seconds, _ in exchange.sent] == [10] * len(exchange.sent)


async def test_an_error_before_the_stream_began_has_its_status(store: Store, patient_clock: MockClock) -> None:
    script = Script(beat_s=10, tokens=[1], prefill_s=10, fail=("unsupported", "no"))
    async with asked(store, script, STREAMED) as exchange:
        pass
    assert exchange.sent[0] == (10, 400)


async def test_an_error_after_it_began_is_a_frame(store: Store, patient_clock: MockClock) -> None:
    script = Script(beat_s=10, tokens=[1], prefill_s=20, fail=("unsupported", "no"))
    async with asked(store, script, STREAMED) as exchange:
        pass
    assert exchange.sent[0] == (15, 200)
    seconds, last = exchange.sent[-1]
    assert seconds == 20
    assert last.startswith(b'data: {"error":')
    assert last.endswith(b"data: [DONE]\n\n")


async def test_a_body_that_does_not_come_is_waited_for_so_long(store: Store, patient_clock: MockClock) -> None:
    async with asked(store, Script(beat_s=10), STREAMED[:9], complete=False) as exchange:
        pass
    assert exchange.sent[0] == (30, 408)
