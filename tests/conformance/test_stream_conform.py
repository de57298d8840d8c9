"""The shape of answers, whole and streamed."""

import json
from pathlib import Path
from typing import Any

import pytest
from chats import until
from scripted_engine import Script
from scripted_server import ScriptedServer, a_chat, scripted_server
from scripted_service import tokens_of
from sockets import connected
from trio.testing import MockClock

from hipfire.catalog.store import Store

CHUNK_KEYS = {"id", "object", "created", "model", "choices"}


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello, world!"), **fields)


async def chunks_of(server: ScriptedServer, **fields: object) -> list[dict[str, Any]]:
    """The chunks of a stream, which must be framed as the contract says."""
    response = await server.chat(stream=True, **fields)
    assert response.status_code == 200
    *frames, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert all(frame.startswith("data: {") and "\n" not in frame for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


async def test_headers_of_a_stream(store: Store) -> None:
    """`text/event-stream`, `Cache-Control: no-store`, `X-Accel-Buffering: no`."""
    async with scripted_server(store, hello()) as server:
        headers = (await server.chat(stream=True)).headers
    assert headers["content-type"].startswith("text/event-stream")
    assert (headers["cache-control"], headers["x-accel-buffering"]) == ("no-store", "no")


async def test_order_of_chunks(store: Store) -> None:
    """First `role`; then deltas with only the keys that changed; then exactly one with `delta:{}` and
    `finish_reason`; then, with `include_usage`, one with `choices:[]` and `usage`; same id, created, model throughout.
    """
    async with scripted_server(store, hello()) as server:
        *chunks, usage = await chunks_of(server, stream_options={"include_usage": True})
        without = await chunks_of(server)
    first, *middle, last = [chunk["choices"][0] for chunk in chunks]
    assert first["delta"]["role"] == "assistant"
    assert [set(choice["delta"]) for choice in middle] == [{"content"}] * len(middle)
    assert "".join(choice["delta"]["content"] for choice in middle) == "Hello, world!"
    assert [choice["finish_reason"] for choice in (first, *middle)] == [None] * (1 + len(middle))
    assert (last["delta"], last["finish_reason"]) == ({}, "stop")
    assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], len(tokens_of("Hello, world!")))
    assert {(chunk["id"], chunk["created"], chunk["model"]) for chunk in (*chunks, usage)} == {
        (usage["id"], usage["created"], "tiny")
    }
    assert all(set(chunk) >= CHUNK_KEYS and chunk["object"] == "chat.completion.chunk" for chunk in chunks)
    assert all(chunk["choices"] for chunk in without)
    assert without[0]["id"] != usage["id"]


async def test_a_whole_answer_has_all_its_parts(store: Store) -> None:
    """One `chat.completion` with message, finish_reason, usage with cached and reasoning tokens, and timings."""
    async with scripted_server(store, hello(n_cached=2)) as server:
        body = (await server.chat()).json()
    (choice,) = body["choices"]
    assert body["object"] == "chat.completion"
    assert choice["message"] == {"role": "assistant", "content": "Hello, world!"}
    assert choice["finish_reason"] == "stop"
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"] == {"cached_tokens": 2}
    assert usage["completion_tokens_details"] == {"reasoning_tokens": 0}
    assert set(body["hipfire"]) == {"timings"}
    assert set(body["hipfire"]["timings"]) == {"queue_ms", "prompt_ms", "prompt_tok_s", "decode_ms", "decode_tok_s"}


@pytest.mark.parametrize("text", ["héllo", "日本語", "🙂🙃", "a\u2028b\r\n\n", '"\\\x00'])
async def test_no_chunk_has_half_a_character(store: Store, text: str) -> None:
    """No chunk holds half a UTF-8 character or a U+FFFD that the model did not mean."""
    async with scripted_server(store, Script(tokens=tokens_of(text))) as server:
        chunks = await chunks_of(server)
    deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
    assert "".join(deltas) == text
    assert "\ufffd" not in "".join(deltas)


async def test_a_replacement_character_that_is_meant_is_kept(store: Store) -> None:
    """A U+FFFD that the model did mean arrives."""
    async with scripted_server(store, Script(tokens=tokens_of("a\ufffdb"))) as server:
        assert (await server.chat()).json()["choices"][0]["message"]["content"] == "a\ufffdb"


async def test_a_stop_string_across_tokens_leaves_nothing_behind(store: Store) -> None:
    """Matched across token borders; the match is not returned; nothing of it leaks into the stream; text held back
    as a possible match is flushed at the end.
    """
    async with scripted_server(store, hello()) as server:
        for stop, text, reason in ((", wor", "Hello", "stop"), ("!?", "Hello, world!", "stop"), ("H", "", "stop")):
            chunks = await chunks_of(server, stop=[stop])
            whole = (await server.chat(stop=stop)).json()["choices"][0]
            deltas = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
            assert "".join(deltas) == whole["message"]["content"] == text
            assert chunks[-1]["choices"][0]["finish_reason"] == whole["finish_reason"] == reason


async def test_tokens_go_out_as_they_come(store: Store) -> None:
    """A delta is sent when its token is there, not when the answer is complete."""
    async with scripted_server(store, hello(hold_after=2)) as server, connected(server.port) as stream:
        body = json.dumps(a_chat(stream=True)).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        await stream.send_all(head.encode() + body)
        received = b""
        while b'"content":"' not in received.partition(b'"role"')[2].partition(b"\n\n")[2]:
            received += await stream.receive_some()
        assert b"[DONE]" not in received


async def test_an_answer_may_take_as_long_as_it_takes(store: Store, patient_clock: MockClock) -> None:
    """There is no limit on how long an answer may take, streamed or not; none of the framework's 60 s either."""
    async with scripted_server(store, hello(prefill_s=130, beat_s=20), patience_s=1000) as server:
        server.client.timeout = None
        assert (await server.chat()).json()["choices"][0]["message"]["content"] == "Hello, world!"


async def test_logprobs_streamed_are_those_of_the_whole(store: Store) -> None:
    """`logprobs`, `top_logprobs`: as OpenAI, streamed and not, with `bytes`."""
    script = hello(logprobs=lambda token: (-0.5, ((token, -0.5), (5, -1.0))))
    async with scripted_server(store, script) as server:
        whole = (await server.chat(logprobs=True, top_logprobs=2)).json()["choices"][0]
        chunks = await chunks_of(server, logprobs=True, top_logprobs=2)
        bare = (await server.chat()).json()["choices"][0]
    streamed = [
        token for chunk in chunks for token in (chunk["choices"][0].get("logprobs") or {"content": []})["content"]
    ]
    assert streamed == whole["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in streamed) == b"Hello, world!"
    for token in streamed:
        assert set(token) == {"token", "logprob", "bytes", "top_logprobs"}
        assert len(token["top_logprobs"]) == 2
    assert bare["logprobs"] is None


async def test_out_of_tokens_is_length(store: Store) -> None:
    """`finish_reason`: `stop`, `length`."""
    async with scripted_server(store, hello()) as server:
        reasons = [
            (await server.chat(max_tokens=n)).json()["choices"][0]["finish_reason"]
            for n in (1, len(tokens_of("Hello, world!")) + 1)
        ]
    assert reasons == ["length", "stop"]


async def test_a_client_that_goes_disturbs_nobody_else(store: Store, tmp_path: Path) -> None:
    """When the client goes away its generation is cancelled, its place is free, and nothing else is disturbed."""
    async with scripted_server(store, hello(hold_after=1)) as server:
        async with connected(server.port) as stream:
            body = json.dumps(a_chat(stream=True)).encode()
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
            await stream.send_all(head.encode() + body)
            await stream.receive_some()
        await until(lambda: bool(server.engine.cancelled))
        server.engine.script.go.set()
        assert (await server.chat()).json()["choices"][0]["message"]["content"] == "Hello, world!"
