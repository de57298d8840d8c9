"""Asks a serve that is up, over HTTP. Knows nothing of how it came up."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from hipfire.cli.question import OnText, Outcome, Question
from hipfire.config.environment import Environment
from hipfire.config.schema import Origin, Settings
from hipfire.errors import HipfireError
from hipfire.lifecycle.endpoint import Endpoint, endpoint_of
from hipfire.lifecycle.health import read_health
from hipfire.lifecycle.pidfile import read_pidfile

_CONNECT_TIMEOUT_S = 5.0


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
    endpoint: Endpoint, question: Question, on_text: OnText, *, stream: bool, key: str | None = None
) -> Outcome:
    """Have a serve answer, which may ask for an API key; the text goes to `on_text` as it comes, or at once.

    Raises ServeFailed, and ConfigError where the serve's certificate cannot be read.

    An exception from `on_text`, or KeyboardInterrupt, closes the connection, and with it the generation ends.
    """
    # An answer may take as long as it takes.
    timeout = httpx.Timeout(None, connect=_CONNECT_TIMEOUT_S)
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    url, trusting = endpoint.url, endpoint.trusting()
    try:
        with (
            # Without TLS there is nothing to verify, and reading the certificates would take a while.
            httpx.Client(
                base_url=url, headers=headers, timeout=timeout, verify=trusting or False, trust_env=False
            ) as client,
            client.stream("POST", "/v1/chat/completions", json=_body(question, stream=stream)) as reply,
        ):
            if reply.status_code != httpx.codes.OK:
                raise _failure(url, reply.read())
            return _read_stream(url, reply, on_text) if stream else _read_whole(json.loads(reply.read()), on_text)
    except httpx.HTTPError as error:
        raise ServeFailed(f"the serve at {url} broke off: {error}", hint="look at its log") from error


def _body(question: Question, *, stream: bool) -> dict[str, object]:
    system = [] if question.system is None else [{"role": "system", "content": question.system}]
    body: dict[str, object] = {
        "model": question.model,
        "messages": [*system, {"role": "user", "content": question.prompt}],
        "stream": stream,
        **question.wishes,
    }
    if question.seed is not None:
        body["seed"] = question.seed
    if stream:
        body["stream_options"] = {"include_usage": True}
    return body


def _failure(url: str, body: bytes) -> ServeFailed:
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = body[:200].decode(errors="replace")
    return ServeFailed(f"the serve at {url}: {message}")


def _read_whole(document: Mapping[str, Any], on_text: OnText) -> Outcome:
    choice = document["choices"][0]
    on_text(choice["message"]["content"])
    return Outcome(
        model=document["model"],
        finish_reason=choice["finish_reason"],
        prompt_tokens=document["usage"]["prompt_tokens"],
        completion_tokens=document["usage"]["completion_tokens"],
        timings=document["hipfire"]["timings"],
    )


def _read_stream(url: str, reply: httpx.Response, on_text: OnText) -> Outcome:
    finish_reason, model = "", ""
    usage = {"prompt_tokens": 0, "completion_tokens": 0}
    for chunk in _events(url, reply):
        model = chunk["model"]
        usage = chunk.get("usage") or usage
        for choice in chunk["choices"]:
            if text := choice["delta"].get("content"):
                on_text(text)
            finish_reason = choice["finish_reason"] or finish_reason
    return Outcome(
        model=model,
        finish_reason=finish_reason,
        prompt_tokens=usage["prompt_tokens"],
        completion_tokens=usage["completion_tokens"],
        timings={},
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
