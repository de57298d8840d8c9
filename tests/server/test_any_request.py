"""Whatever JSON a client sends, it gets an answer or an error that says what is wrong: never a 500."""

import json
import tempfile
from pathlib import Path
from typing import Any

import attrs
import httpx
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import models_in, tokens_of

from hipfire.server.schema import ChatRequest

CODES = {"invalid_request", "invalid_json", "unsupported", "context_length_exceeded", "model_not_found"}

anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["", "auto", "text", "tiny", "/", "\x00", "\ud800", "low", "on"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("type"), inner, max_size=3)
    ),
    max_leaves=8,
)
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "developer", "user", "assistant", "tool"]), "content": anything},
        optional={"name": anything, "tool_calls": anything, "reasoning_content": anything},
    ),
    max_size=4,
)
fields = st.sampled_from([field.name for field in attrs.fields(ChatRequest)] + ["user", "surprise"])
requests = st.builds(
    lambda base, extra: {**base, **extra},
    st.fixed_dictionaries({"messages": messages | st.just([{"role": "user", "content": "hi"}])}),
    st.dictionaries(fields, anything, max_size=3),
)


@given(documents=st.lists(requests | anything, min_size=1, max_size=10))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_document(documents: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(ask_all, Path(folder), [json.dumps(document).encode() for document in documents])


@given(bodies=st.lists(st.binary(max_size=30) | st.text(max_size=30).map(str.encode), min_size=1, max_size=10))
@settings(max_examples=10, deadline=None)
def test_any_bytes(bodies: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        trio.run(ask_all, Path(folder), bodies)


async def ask_all(folder: Path, bodies: list[bytes]) -> None:
    async with scripted_server(models_in(folder, "tiny"), Script(tokens=tokens_of("Hello"))) as server:
        for body in bodies:
            response = await server.client.post("/v1/chat/completions", content=body)
            if response.status_code == 200:
                check_answer(response)
            else:
                assert response.status_code in (400, 404), response.text
                error = response.json()["error"]
                assert set(error) == {"message", "type", "param", "code"}
                assert error["message"]
                assert error["code"] in CODES


def check_answer(response: httpx.Response) -> None:
    if response.headers["content-type"] == "text/event-stream":
        assert response.text.endswith("data: [DONE]\n\n")
        assert '"error"' not in response.text
    else:
        assert response.json()["object"] == "chat.completion"


@given(
    text=st.text(max_size=60),
    stop=st.lists(st.text(min_size=1, max_size=5), max_size=3) | st.none(),
    max_tokens=st.integers(1, 80),
    logprobs=st.booleans(),
)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_stream_says_what_a_whole_answer_says(
    text: str, stop: list[str] | None, max_tokens: int, logprobs: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        chat = a_chat(stop=stop, max_tokens=max_tokens, logprobs=logprobs, stream_options={"include_usage": True})
        trio.run(compare, Path(folder), text, chat)


async def compare(folder: Path, text: str, chat: dict[str, object]) -> None:
    script = Script(tokens=tokens_of(text), logprobs=lambda token: (-1.0, ((token, -1.0),)))
    async with scripted_server(models_in(folder, "tiny"), script) as server:
        whole = (await server.chat(**chat)).json()
        frames = (await server.chat(**chat, stream=True)).text.split("\n\n")
    chunks = [json.loads(frame.removeprefix("data: ")) for frame in frames if frame.startswith("data: {")]
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    choice = whole["choices"][0]
    assert "".join(part["delta"].get("content", "") for part in choices) == choice["message"]["content"]
    assert choices[-1]["finish_reason"] == choice["finish_reason"]
    assert chunks[-1]["usage"] == whole["usage"]
    tokens = [token for part in choices for token in (part.get("logprobs") or {"content": []})["content"]]
    assert tokens == ((choice["logprobs"] or {"content": []})["content"])
