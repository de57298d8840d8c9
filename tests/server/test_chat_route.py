import json
from typing import Any

import pytest
from scripted_engine import Script
from scripted_server import ScriptedServer, scripted_server
from scripted_service import tokens_of

from hipfire.catalog.store import Store

TEXT = "Hello, wörld! 😀"
N_TOKENS = len(tokens_of(TEXT))


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of(TEXT), **fields)


def logprobs(token: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    return -token / 100, ((token, -token / 100), (1, -9.0))


async def streamed(server: ScriptedServer, **fields: object) -> list[Any]:
    """The data of a stream's frames; `[DONE]` and comments as they are."""
    response = await server.chat(stream=True, **fields)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/event-stream"
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["x-accel-buffering"] == "no"
    frames = response.text.split("\n\n")
    assert frames.pop() == ""
    return [frame_data(frame) for frame in frames]


def frame_data(frame: str) -> Any:
    data = frame.removeprefix("data: ")
    return json.loads(data) if data.startswith("{") else data


def deltas(chunks: list[Any]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if isinstance(chunk, dict) and chunk.get("choices")]


async def test_a_whole_answer(store: Store) -> None:
    async with scripted_server(store, hello(n_cached=3)) as server:
        response = await server.chat()
        (prompt,) = server.engine.prompts()
    assert response.status_code == 200
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert body.pop("id").startswith("chatcmpl-")
    assert isinstance(body.pop("created"), int)
    timings = body["hipfire"].pop("timings")
    n_prompt = len(prompt.prompt)
    assert body == {
        "object": "chat.completion",
        "model": "tiny",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": TEXT},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": n_prompt,
            "completion_tokens": N_TOKENS,
            "total_tokens": n_prompt + N_TOKENS,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
        "hipfire": {},
    }
    assert timings.pop("queue_ms") >= 0
    assert timings == {
        "prompt_ms": 10.0,
        "prompt_tok_s": round((n_prompt - 3) / 0.010, 3),
        "decode_ms": 20.0,
        "decode_tok_s": round((N_TOKENS - 1) / 0.020, 3),
    }


async def test_a_streamed_answer(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        *chunks, done = await streamed(server, stream_options={"include_usage": True})
        whole = (await server.chat()).json()
    assert done == "[DONE]"
    assert {tuple(chunk[name] for name in ("id", "object", "created", "model")) for chunk in chunks} == {
        (chunks[0]["id"], "chat.completion.chunk", chunks[0]["created"], "tiny")
    }
    first, *texts, finish, usage = chunks
    assert first["choices"] == [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]
    assert all(set(delta) == {"content"} for delta in deltas(texts))
    assert {chunk["choices"][0]["finish_reason"] for chunk in texts} == {None}
    assert "".join(delta["content"] for delta in deltas(texts)) == TEXT == whole["choices"][0]["message"]["content"]
    assert not any("�" in delta["content"] for delta in deltas(texts))
    assert finish["choices"] == [{"index": 0, "delta": {}, "finish_reason": "stop"}]
    assert finish["hipfire"]["timings"]["decode_ms"] == 20.0
    assert usage["choices"] == []
    assert usage["usage"] == whole["usage"]


async def test_no_usage_where_it_is_not_asked_for(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        for options in ({}, {"stream_options": {}}, {"stream_options": {"include_usage": False}}):
            *chunks, _ = await streamed(server, **options)
            assert all("usage" not in chunk for chunk in chunks)


async def test_log_probabilities(store: Store) -> None:
    async with scripted_server(store, hello(logprobs=logprobs)) as server:
        whole = (await server.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"]
        chunks = await streamed(server, logprobs=True, top_logprobs=2)
        asked = server.engine.prompts()[0].sampling.n_logprobs
    assert asked == 2
    assert whole["refusal"] is None
    assert len(whole["content"]) == N_TOKENS
    assert bytes(byte for token in whole["content"] for byte in token["bytes"]).decode() == TEXT
    first = whole["content"][0]
    token = tokens_of(TEXT)[0]
    assert first["logprob"] == -token / 100
    assert bytes(first["bytes"]).decode() == first["token"]
    assert first["top_logprobs"][0] == {key: first[key] for key in ("token", "logprob", "bytes")}
    assert first["top_logprobs"][1]["logprob"] == -9.0
    from_stream = [
        entry
        for chunk in chunks
        if isinstance(chunk, dict) and chunk["choices"]
        for entry in chunk["choices"][0].get("logprobs", {"content": []})["content"]
    ]
    assert from_stream == whole["content"]


async def test_length_ends_an_answer_too(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        body = (await server.chat(max_tokens=2)).json()
        chunks = await streamed(server, max_tokens=2)
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["usage"]["completion_tokens"] == 2
    assert chunks[-2]["choices"][0]["finish_reason"] == "length"


async def test_a_stop_string_is_not_shown(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        body = (await server.chat(stop=["wör"])).json()
        *chunks, _ = await streamed(server, stop=["wör"])
    assert body["choices"][0]["message"]["content"] == "Hello, "
    assert body["choices"][0]["finish_reason"] == "stop"
    assert "".join(delta.get("content", "") for delta in deltas(chunks)) == "Hello, "


async def test_an_answer_without_tokens(store: Store) -> None:
    async with scripted_server(store, Script()) as server:
        body = (await server.chat()).json()
        first, finish, done = await streamed(server)
    assert body["choices"][0]["message"]["content"] == ""
    assert deltas([first, finish]) == [{"role": "assistant", "content": ""}, {}]
    assert done == "[DONE]"


async def test_warnings_come_along(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        body = (await server.chat(reasoning_effort="high")).json()
        *_, finish, _ = await streamed(server, reasoning_effort="high")
    warnings = ["reasoning_effort: dropped, tiny does not reason"]
    assert body["hipfire"]["config_warnings"] == warnings
    assert finish["hipfire"]["config_warnings"] == warnings


async def test_the_reply_names_the_model_that_answered(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        answered = [(await server.chat(**fields)).json()["model"] for fields in ({}, {"model": "other"}, {"model": ""})]
    assert answered == ["tiny", "other", "other"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        ({"fail": ("context_length_exceeded", "too long")}, 400, "context_length_exceeded"),
        ({"fail": ("out_of_memory", "secret")}, 500, "internal_error"),
        ({"fail": ("oops", "secret")}, 500, "internal_error"),
        ({"fail_load": ("unsupported", "no such architecture")}, 400, "unsupported"),
        ({"fail_load": ("out_of_memory", "secret")}, 500, "internal_error"),
        ({"die_after": 0}, 503, "engine_unavailable"),
        ({"die_in_load": True}, 503, "engine_unavailable"),
    ],
)
async def test_an_early_failure_is_an_error_response(
    store: Store, script: dict[str, Any], status: int, code: str, stream: bool
) -> None:
    async with scripted_server(store, hello(**script)) as server:
        response = await server.chat(stream=stream)
    error = response.json()["error"]
    assert (response.status_code, error["code"]) == (status, code)
    assert "secret" not in error["message"]
    assert response.headers.get("retry-after") == ("1" if status == 503 else None)


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ({"fail": ("oops", "secret"), "fail_after": 2}, "internal_error"),
        ({"die_after": 2}, "engine_unavailable"),
    ],
)
async def test_a_late_failure_is_the_last_frame_but_one(store: Store, script: dict[str, Any], code: str) -> None:
    async with scripted_server(store, hello(**script)) as server:
        *chunks, error, done = await streamed(server)
        assert (await server.client.get("/health")).status_code == 200
    assert len(deltas(chunks)) == 3
    assert error["error"]["code"] == code
    assert "secret" not in json.dumps(error)
    assert done == "[DONE]"


async def test_a_failure_of_ours_is_an_error_response_too(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with scripted_server(store, hello()) as server:
        monkeypatch.setattr(server.service.admission, "enter", None)
        for stream in (False, True):
            response = await server.chat(stream=stream)
            assert (response.status_code, response.json()["error"]["code"]) == (500, "internal_error")
            assert "NoneType" not in response.text
    assert "NoneType" in caplog.text


async def test_two_requests_on_one_connection(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        for _ in range(2):
            assert (await streamed(server))[-1] == "[DONE]"


async def test_messages_the_template_takes_only_in_another_form(store: Store) -> None:
    messages = [
        {"role": "user", "content": "one"},
        {"role": "system", "content": "two"},
        {"role": "user", "content": [{"type": "text", "text": "three"}]},
    ]
    async with scripted_server(store, hello()) as server:
        assert (await server.chat(messages=messages)).status_code == 200
