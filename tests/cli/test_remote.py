import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import attrs
import pytest

from hipfire.cli.question import Listener, Question, Turn
from hipfire.cli.remote import ServeFailed, ask_serve, find_serve
from hipfire.config.environment import read_environment
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.errors import ContextLengthExceeded
from hipfire.lifecycle.endpoint import Endpoint
from hipfire.lifecycle.pidfile import pidfile

QUESTION = Question(
    model="m",
    turns=[Turn(role="system", content="Be terse."), Turn(role="user", content="Hello")],
    seed=7,
    wishes={"temperature": 0.0},
)


@attrs.define(kw_only=True)
class FakeServe:
    """Answers every request with the same status and body, and remembers what it was asked."""

    port: int = 0
    status: int = 200
    body: bytes = b""
    asked: list[dict[str, object]] = attrs.field(factory=list)
    authorizations: list[str | None] = attrs.field(factory=list)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(host="127.0.0.1", port=self.port)


@pytest.fixture
def serve() -> Iterator[FakeServe]:
    fake = FakeServe()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(fake.status)
            self.end_headers()
            self.wfile.write(fake.body)

        def do_POST(self) -> None:
            fake.authorizations.append(self.headers["Authorization"])
            fake.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        fake.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        server.shutdown()
        thread.join()


def frames(*chunks: object) -> bytes:
    """A stream of these chunks, with the closing mark."""
    return b"".join(b"data: " + json.dumps(chunk, ensure_ascii=False).encode() + b"\n\n" for chunk in chunks)


def chunk(delta: dict[str, str], *, finish_reason: str | None = None, **fields: object) -> dict[str, object]:
    return {"model": "m", "choices": [{"delta": delta, "finish_reason": finish_reason}], **fields}


@attrs.define
class Heard:
    """What a listener was told."""

    texts: list[str] = attrs.field(factory=list)
    reasonings: list[str] = attrs.field(factory=list)

    @property
    def listener(self) -> Listener:
        return Listener(on_text=self.texts.append, on_reasoning=self.reasonings.append)


DONE = b"data: [DONE]\n\n"


def test_a_stream_is_passed_on_as_it_comes(serve: FakeServe) -> None:
    # U+2028 ends a line to some, not to us.
    serve.body = b": keepalive\n\n" + frames(
        chunk({"role": "assistant"}),
        chunk({"reasoning_content": "Hm."}),
        chunk({"content": "a\u2028b"}),
        chunk({"content": "c"}),
        chunk({}, finish_reason="stop"),
        {"model": "m", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    ) + DONE  # fmt: skip
    heard = Heard()
    outcome = ask_serve(serve.endpoint, QUESTION, heard.listener, stream=True)
    assert (heard.reasonings, heard.texts) == (["Hm."], ["a\u2028b", "c"])
    assert (outcome.finish_reason, outcome.prompt_tokens, outcome.completion_tokens) == ("stop", 3, 2)
    assert serve.asked == [
        {
            "model": "m",
            "messages": [{"role": "system", "content": "Be terse."}, {"role": "user", "content": "Hello"}],
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0.0,
            "seed": 7,
        }
    ]


def test_a_whole_answer_comes_with_its_timings(serve: FakeServe) -> None:
    document = {
        "model": "m",
        "choices": [{"message": {"content": "abc", "reasoning_content": "Hm."}, "finish_reason": "length"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "hipfire": {"timings": {"decode_tok_s": 5.0}, "config_warnings": ["w"]},
    }
    serve.body = json.dumps(document).encode()
    heard = Heard()
    outcome = ask_serve(serve.endpoint, QUESTION, heard.listener, stream=False)
    assert (heard.reasonings, heard.texts) == (["Hm."], ["abc"])
    assert (outcome.finish_reason, outcome.timings, outcome.warnings) == ("length", {"decode_tok_s": 5.0}, ["w"])


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, b'{"error": {"message": "no such model"}}', "no such model"),
        (502, b"<html>Bad Gateway</html>", "<html>Bad Gateway</html>"),
        (200, frames(chunk({"content": "a"}), {"error": {"message": "the engine stopped"}}) + DONE, "engine stopped"),
        (200, frames(chunk({"content": "a"})), "ended its stream too early"),
    ],
)
def test_a_failure_says_what_the_serve_said(serve: FakeServe, status: int, body: bytes, message: str) -> None:
    serve.status, serve.body = status, body
    with pytest.raises(ServeFailed, match=f"the serve at {serve.endpoint.url}.*{message}"):
        ask_serve(serve.endpoint, QUESTION, Heard().listener, stream=True)


def test_a_conversation_that_is_too_long_is_told_apart(serve: FakeServe) -> None:
    serve.status, serve.body = 400, b'{"error": {"message": "too long", "code": "context_length_exceeded"}}'
    with pytest.raises(ContextLengthExceeded, match="too long"):
        ask_serve(serve.endpoint, QUESTION, Heard().listener, stream=True)


def test_wishes_about_reasoning_and_earlier_reasoning_are_sent(serve: FakeServe) -> None:
    serve.body = frames(chunk({}, finish_reason="stop", hipfire={"config_warnings": ["w"]})) + DONE
    turns = [Turn(role="assistant", content="Yes.", reasoning="Hm.")]
    question = attrs.evolve(QUESTION, turns=turns, reasoning={"thinking": False, "reasoning_effort": "low"})
    assert ask_serve(serve.endpoint, question, Heard().listener, stream=True).warnings == ["w"]
    (asked,) = serve.asked
    assert (asked["thinking"], asked["reasoning_effort"]) == (False, "low")
    assert asked["messages"] == [{"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}]


def test_nobody_there_is_a_failure() -> None:
    with pytest.raises(ServeFailed, match="broke off"):
        ask_serve(Endpoint(host="127.0.0.1", port=1), QUESTION, Heard().listener, stream=True)


HEALTHY = b'{"status": "ok", "model": null, "loading_model": null}'


def settings_with(port: int, origin: Origin) -> Settings:
    return Settings().replaced({"serve.port": Sourced(port, Source(origin, ""))})


@pytest.mark.parametrize(
    ("body", "is_serve"),
    [
        (HEALTHY, True),
        (b'{"status": "unhealthy", "loading_model": null}', False),
        (b'{"status": "ok"}', False),
        (b"[]", False),
        (b"OK", False),
    ],
)
def test_a_serve_is_told_by_its_health(serve: FakeServe, body: bytes, is_serve: bool, tmp_path: Path) -> None:
    serve.body = body
    environment = read_environment({"HIPFIRE_HOME": str(tmp_path)})
    found = find_serve(environment, settings_with(serve.port, Origin.GLOBAL))
    assert found == (serve.endpoint if is_serve else None)


def test_only_a_serve_with_the_model_counts_where_one_is_named(serve: FakeServe, tmp_path: Path) -> None:
    serve.body = b'{"status": "ok", "model": "/models/mine.gguf", "loading_model": null}'
    environment, settings = read_environment({"HIPFIRE_HOME": str(tmp_path)}), settings_with(serve.port, Origin.GLOBAL)
    assert find_serve(environment, settings, loaded="/models/mine.gguf") == serve.endpoint
    assert find_serve(environment, settings, loaded="/models/other.gguf") is None


def test_the_pidfile_leads_to_a_serve_on_another_port(serve: FakeServe, tmp_path: Path) -> None:
    serve.body = HEALTHY
    environment = read_environment({"HIPFIRE_HOME": str(tmp_path)})
    with pidfile(environment.pidfile, Endpoint(host="0.0.0.0", port=serve.port)):
        found = find_serve(environment, settings_with(1, Origin.GLOBAL))
        assert found is not None
        assert found.url == serve.endpoint.url
        # Said for this very run, it counts for more.
        assert find_serve(environment, settings_with(1, Origin.ENVIRONMENT)) is None
    assert find_serve(environment, settings_with(1, Origin.GLOBAL)) is None
