"""Asks a serve that is up, over HTTP. Knows nothing of how it came up."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from hipfire.cli.question import Listener, Outcome, Question, Turn
from hipfire.config.environment import Environment
from hipfire.config.schema import Origin, Settings
from hipfire.errors import ContextLengthExceeded, HipfireError
from hipfire.lifecycle.endpoint import Endpoint, endpoint_of
from hipfire.lifecycle.health import read_health
from hipfire.lifecycle.pidfile import read_pidfile

_CONNECT_TIMEOUT_S = 5.0
_REFUSED_KEY = "invalid_api_key"


class ServeFailed(HipfireError):
    """A serve that is up did not answer the question."""

    code = "serve_failed"


def find_serve(environment: Environment, settings: Settings, *, loaded: str | None = None) -> Endpoint | None:
    """A healthy serve of this machine, or None; with `loaded`, only of one that has this model loaded.

    Looked for where the pidfile says, unless a flag or variable says otherwise.
    """
    endpoint = endpoint_of(settings.serve)
    said = max(settings.sourced("serve.host").source.origin, settings.sourced("serve.port").source.origin)
    serving = read_pidfile(environment.pidfile)
    if serving is not None and serving.alive:
        same = (serving.host, serving.port) == (endpoint.host, endpoint.port)
        endpoint = serving.endpoint if same or said < Origin.ENVIRONMENT else endpoint
    health = read_health(endpoint)
    if health is None or health.get("status") == "unhealthy" or (loaded is not None and health.get("model") != loaded):
        return None
    return endpoint


def ask_serve(
    endpoint: Endpoint, question: Question, listener: Listener, *, stream: bool, key: str | None = None
) -> Outcome:
    """Have a serve answer, which may ask for an API key; the listener hears it as it comes, or at once.

    Raises ContextLengthExceeded, ServeFailed, and ConfigError where the serve's certificate cannot be read.

    An exception from the listener, or KeyboardInterrupt, closes the connection, and with it the generation ends.
    """
    url = endpoint.url
    try:
        with (
            _client(endpoint, key) as client,
            client.stream("POST", "/v1/chat/completions", json=_body(question, stream=stream)) as reply,
        ):
            if reply.status_code != httpx.codes.OK:
                raise _failure(url, reply.read())
            return _read_stream(url, reply, listener) if stream else _read_whole(json.loads(reply.read()), listener)
    except httpx.HTTPError as error:
        raise ServeFailed(f"the serve at {url} broke off: {error}", hint="look at its log") from error


def read_models(endpoint: Endpoint, *, key: str | None = None) -> list[dict[str, Any]]:
    """The models that a serve has, as it tells of them, the loaded one first. Raises ServeFailed, ConfigError."""
    try:
        with _client(endpoint, key) as client:
            reply = client.get("/v1/models")
    except httpx.HTTPError as error:
        raise ServeFailed(f"the serve at {endpoint.url} broke off: {error}", hint="look at its log") from error
    if reply.status_code != httpx.codes.OK:
        raise _failure(endpoint.url, reply.content)
    models: list[dict[str, Any]] = reply.json()["data"]
    return models


def _client(endpoint: Endpoint, key: str | None) -> httpx.Client:
    return httpx.Client(
        base_url=endpoint.url,
        headers={} if key is None else {"Authorization": f"Bearer {key}"},
        # An answer may take as long as it takes.
        timeout=httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S),
        # Without TLS there is nothing to verify, and reading the certificates would take a while.
        verify=endpoint.trusting() or False,
        trust_env=False,
    )


def _body(question: Question, *, stream: bool) -> dict[str, object]:
    body: dict[str, object] = {
        "model": question.model,
        "messages": [_message(turn) for turn in question.turns],
        "stream": stream,
        **question.wishes,
        **question.reasoning,
    }
    if question.seed is not None:
        body["seed"] = question.seed
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


def _message(turn: Turn) -> dict[str, str]:
    message = {"role": turn.role, "content": turn.content}
    return message | {"reasoning_content": turn.reasoning} if turn.reasoning else message


def _failure(url: str, body: bytes) -> HipfireError:
    try:
        error = json.loads(body)["error"]
        message, code = error["message"], error.get("code")
    except (ValueError, KeyError, TypeError, AttributeError):
        message, code = body[:200].decode(errors="replace"), None
    if code == _REFUSED_KEY:
        # How to send a key is for programs.
        return ServeFailed(
            f"the serve at {url}: {message.partition(' (')[0]}", hint="set serve.api_keys or HIPFIRE_API_KEYS"
        )
    kind = ContextLengthExceeded if code == ContextLengthExceeded.code else ServeFailed
    return kind(f"the serve at {url}: {message}")


def _read_whole(document: Mapping[str, Any], listener: Listener) -> Outcome:
    choice = document["choices"][0]
    if reasoning := choice["message"].get("reasoning_content"):
        listener.on_reasoning(reasoning)
    listener.on_text(choice["message"]["content"])
    return _outcome(document, choice["finish_reason"], document["usage"], document["hipfire"])


def _read_stream(url: str, reply: httpx.Response, listener: Listener) -> Outcome:
    chunk: dict[str, Any] = {}
    extension: Mapping[str, Any] = {}
    finish_reason, usage = "", {"prompt_tokens": 0, "completion_tokens": 0}
    for chunk in _events(url, reply):
        usage = chunk.get("usage") or usage
        extension = chunk.get("hipfire") or extension
        for choice in chunk["choices"]:
            if reasoning := choice["delta"].get("reasoning_content"):
                listener.on_reasoning(reasoning)
            if text := choice["delta"].get("content"):
                listener.on_text(text)
            finish_reason = choice["finish_reason"] or finish_reason
    return _outcome(chunk, finish_reason, usage, extension)


def _outcome(
    document: Mapping[str, Any], finish_reason: str, usage: Mapping[str, int], extension: Mapping[str, Any]
) -> Outcome:
    return Outcome(
        model=document.get("model", ""),
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        timings=extension.get("timings", {}),
        warnings=extension.get("config_warnings", ()),
    )


def _events(url: str, reply: httpx.Response) -> Iterator[dict[str, Any]]:
    """The stream's chunks. Raises ServeFailed for an error among them, or an end without the closing mark."""
    is_whole = False
    # Read to the very end: to the serve, a client that closes before it is one that left.
    for line in _lines(reply):
        if line == b"data: [DONE]":
            is_whole = True
        elif line.startswith(b"data: "):
            data = line.removeprefix(b"data: ")
            chunk = json.loads(data)
            if "error" in chunk:
                raise _failure(url, data)
            yield chunk
    if not is_whole:
        raise ServeFailed(f"the serve at {url} ended its stream too early", hint="look at its log")


def _lines(reply: httpx.Response) -> Iterator[bytes]:
    """Lines by line feeds alone; httpx's own would break at U+2028 and the like, which JSON has as they are."""
    rest = b""
    for chunk in reply.iter_bytes():
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop()
        yield from lines
