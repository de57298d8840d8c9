import logging
from typing import Any

import pytest
import trio
from hypercorn.typing import ASGISendCallable

from hipfire.server.access_log import AccessLog


async def request(path: bytes, *sent: dict[str, Any], forever: bool = False) -> None:
    """A request to an application that sends these events, and then waits for ever or ends."""

    async def app(_scope: Any, _receive: Any, send: ASGISendCallable) -> None:
        for event in sent:
            await send(event)  # type: ignore[arg-type]
        if forever:
            await trio.sleep_forever()

    async def ignore(_event: Any) -> None:
        pass

    await AccessLog(app)({"type": "http", "method": "GET", "raw_path": path}, ignore, ignore)  # type: ignore[arg-type]


START = {"type": "http.response.start", "status": 200, "headers": []}
MORE = {"type": "http.response.body", "body": b"x", "more_body": True}
END = {"type": "http.response.body", "body": b"", "more_body": False}


@pytest.fixture(autouse=True)
def at_info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="hipfire.server")


async def test_a_request_is_one_line(autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture) -> None:
    del autojump_clock
    await request(b"/v1/models", START, MORE, END)
    assert caplog.messages == ["GET /v1/models 200, 0 ms"]


async def test_an_unfinished_answer_is_told_apart(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    with trio.move_on_after(2):
        await request(b"/v1/models", START, MORE, forever=True)
    assert caplog.messages == ["GET /v1/models broken off, 2000 ms"]


async def test_a_path_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    await request(b"/a%0Ab\xff", START, END)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(r"GET /a%0Ab\xff 200, ")


@pytest.mark.parametrize("path", [b"/health", b"/stats"])
async def test_what_is_asked_for_all_the_time_is_quiet(path: bytes, caplog: pytest.LogCaptureFixture) -> None:
    await request(path, START, END)
    assert caplog.messages == []


async def test_a_line_has_its_parts_for_programs(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    del autojump_clock
    await request(b"/v1/models", START, END)
    (record,) = caplog.records
    assert record.__dict__["fields"] == {
        "method": "GET",
        "path": "/v1/models",
        "status": 200,
        "complete": True,
        "duration_ms": 0.0,
    }
