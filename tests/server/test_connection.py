"""Connections end: each test is something that Hypercorn's own connection would leave open, or never notice."""

import math
from collections.abc import AsyncIterator

import h2.config
import h2.connection
import httpx
import pytest
import trio
from quart import Response
from quart_trio import QuartTrio
from sockets import connected, exchange, read_answer, read_to_end, serving

from hipfire.server.transport import Limits


class App(QuartTrio):
    """Three paths: one that answers, one that never does, one that never stops."""

    def __init__(self) -> None:
        super().__init__("test", static_folder=None)
        self.config["RESPONSE_TIMEOUT"] = None
        self.waiting = trio.Event()
        self.gone = trio.Event()
        self.add_url_rule("/hi", "hi", self.hi, methods=["GET", "POST"])
        self.add_url_rule("/wait", "wait", self.wait, methods=["GET", "POST"])
        self.add_url_rule("/flood", "flood", self.flood)

    async def hi(self) -> str:
        return "hello"

    async def wait(self) -> str:
        self.waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            self.gone.set()

    async def flood(self) -> Response:
        async def body() -> AsyncIterator[bytes]:
            try:
                while True:
                    yield bytes(1 << 16)
            finally:
                self.gone.set()

        return Response(body())


def limits(*, stall_s: float = 30, head_s: float = 30, max_connections: int = 512, drain_s: float = 30) -> Limits:
    return Limits(
        stall_timeout_s=stall_s,
        head_timeout_s=head_s,
        max_connections=max_connections,
        drain_timeout_s=drain_s,
        linger_s=0.05,
        cut_off_grace_s=0.01,
    )


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /hi HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n",
        b"POST /hi HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}",
        b"GET /hi HTTP/1.0\r\n\r\n",
    ],
)
async def test_the_socket_closes_after_the_answer_when_asked_to(request_: bytes) -> None:
    async with serving(App()) as here:
        assert (await exchange(here.port, request_)).endswith(b"\r\n\r\nhello")


async def test_a_connection_is_kept_alive_until_it_idles() -> None:
    async with serving(App(), limits=limits(head_s=0.05)) as here, connected(here.port) as stream:
        for _ in range(2):
            await stream.send_all(b"GET /hi HTTP/1.1\r\nHost: test\r\n\r\n")
            assert (await read_answer(stream)).endswith(b"hello")
        assert await read_to_end(stream) == b""


@pytest.mark.parametrize("head", [b"", b"GET /hi HT", b"GET /hi HTTP/1.1\r\nHost: test\r\n"])
async def test_a_head_that_does_not_arrive_ends_the_connection(head: bytes) -> None:
    async with serving(App(), limits=limits(head_s=0.05)) as here:
        assert await exchange(here.port, head) == b""


async def test_a_head_may_not_be_dribbled() -> None:
    async with serving(App(), limits=limits(head_s=0.1)) as here, connected(here.port) as stream:
        await stream.send_all(b"GET /hi HTTP/1.1\r\nHost: test\r\n")
        with pytest.raises(trio.BrokenResourceError):
            await dribble(stream)


async def dribble(stream: trio.SocketStream) -> None:
    while True:
        await stream.send_all(b"A: b\r\n")
        await trio.sleep(0.01)


async def test_a_client_that_stops_reading_is_dropped() -> None:
    app = App()
    async with serving(app, limits=limits(stall_s=0.05)) as here, connected(here.port, receive_buffer=4096) as stream:
        await stream.send_all(b"GET /flood HTTP/1.1\r\nHost: test\r\n\r\n")
        await app.gone.wait()


async def test_a_client_that_goes_while_it_does_not_read_is_noticed_at_once() -> None:
    app = App()
    async with serving(app) as here, connected(here.port, receive_buffer=4096) as stream:
        await stream.send_all(b"GET /flood HTTP/1.1\r\nHost: test\r\n\r\n")
        await stream.receive_some()
        await stream.aclose()
        await app.gone.wait()


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(b"GET /wait HTTP/1.1\r\nHost: test\r\n\r\n", id="plain"),
        pytest.param(b"GET /wait HTTP/1.1\r\nHost: test\r\n\r\n\r\n", id="a line too many"),
        pytest.param(b"GET /wait HTTP/1.1\r\nHost: test\r\n\r\nGET /hi HTTP/1.1\r\nHost: test\r\n\r\n", id="pipelined"),
        pytest.param(
            b"POST /wait HTTP/1.1\r\nHost: test\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
            b"HTTP2-Settings: AAMAAABkAAQAAP__\r\nContent-Length: 2\r\n\r\n{}",
            id="upgrade offered",
        ),
    ],
)
async def test_a_client_that_goes_before_its_answer_is_noticed(request_: bytes) -> None:
    app = App()
    async with serving(app) as here:
        async with connected(here.port) as stream:
            await stream.send_all(request_)
            await app.waiting.wait()
        await app.gone.wait()


async def test_pipelined_requests_are_answered_in_turn() -> None:
    hi = b"GET /hi HTTP/1.1\r\nHost: test\r\n\r\n"
    last = b"GET /hi HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n"
    async with serving(App()) as here:
        assert (await exchange(here.port, hi + hi + last)).count(b"hello") == 3


async def test_an_answer_before_the_body_was_read_arrives_whole() -> None:
    async with serving(App(), limits=limits()) as here, connected(here.port) as stream:
        await stream.send_all(b"POST /hi HTTP/1.1\r\nHost: test\r\nContent-Length: 4000000\r\n\r\n")
        await stream.send_all(bytes(4_000_000 - 1))
        assert (await read_to_end(stream)).endswith(b"hello")


async def test_more_connections_than_allowed_wait() -> None:
    async with serving(App(), limits=limits(max_connections=1)) as here, connected(here.port) as first:
        await first.send_all(b"GET /hi HTTP/1.1\r\nHost: test\r\n\r\n")
        await read_answer(first)
        async with connected(here.port) as second:
            await second.send_all(b"GET /hi HTTP/1.1\r\nHost: test\r\n\r\n")
            with trio.move_on_after(0.05) as patience:
                await read_answer(second)
            assert patience.cancelled_caught
            await first.aclose()
            assert (await read_answer(second)).endswith(b"hello")


async def test_what_is_no_http_is_answered_in_json() -> None:
    async with serving(App()) as here:
        answer = await exchange(here.port, b"who are you?\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/json" in answer
    assert b'"code": "invalid_request"' in answer


async def test_http2_without_tls() -> None:
    async with serving(App()) as here, httpx.AsyncClient(http1=False, http2=True) as client:
        response = await client.get(f"http://127.0.0.1:{here.port}/hi")
    assert (response.http_version, response.text) == ("HTTP/2", "hello")


async def test_a_failing_connection_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding=None))
    client.initiate_connection()
    # Hypercorn reads a path as ASCII.
    client.send_headers(
        1,
        [(b":method", b"GET"), (b":path", b"/\xff"), (b":scheme", b"http"), (b":authority", b"test")],
        end_stream=True,
    )
    async with serving(App()) as here:
        await exchange(here.port, client.data_to_send())
        assert "a connection failed" in caplog.text
        answer = await exchange(here.port, b"GET /hi HTTP/1.0\r\n\r\n")
    assert answer.endswith(b"hello")


async def test_shutdown_frees_the_port_closes_what_idles_and_lets_the_rest_finish() -> None:
    app = App()
    release = trio.Event()

    @app.get("/slow")
    async def slow() -> str:
        app.waiting.set()
        await release.wait()
        return "done"

    async with serving(app) as here, connected(here.port) as idle, connected(here.port) as busy:
        await busy.send_all(b"GET /slow HTTP/1.1\r\nHost: test\r\n\r\n")
        await app.waiting.wait()
        here.shutdown.set()
        assert await read_to_end(idle) == b""
        with pytest.raises(OSError, match="failed"):
            await trio.open_tcp_stream("127.0.0.1", here.port)
        release.set()
        assert (await read_to_end(busy)).endswith(b"done")
        await busy.aclose()
        await here.ended.wait()


async def test_what_does_not_finish_in_time_is_cut_off() -> None:
    app = App()
    times: list[float] = []
    async with (
        serving(app, cut_off=lambda: times.append(trio.current_time()), limits=limits(drain_s=0.05)) as here,
        connected(here.port) as stream,
    ):
        await stream.send_all(b"GET /wait HTTP/1.1\r\nHost: test\r\n\r\n")
        await app.waiting.wait()
        here.shutdown.set()
        assert await read_to_end(stream) == b""
        await here.ended.wait()
    assert len(times) == 1
    assert app.gone.is_set()
    assert math.isfinite(times[0])
