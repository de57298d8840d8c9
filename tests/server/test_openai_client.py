"""The real client, as people use it."""

from collections.abc import Callable
from typing import Any, TypeVar

import httpx
import openai
import pytest
import trio
from openai import OpenAI
from scripted_engine import Script
from scripted_server import ScriptedServer, scripted_server
from scripted_service import some_settings, tokens_of
from sockets import PATIENCE_S

from hipfire.catalog.store import Store

TEXT = "Paris. 😀"
MESSAGES: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
T = TypeVar("T")


def script(**fields: Any) -> Script:
    return Script(tokens=tokens_of(TEXT), **fields)


async def ask(server: ScriptedServer, question: Callable[[OpenAI], T]) -> T:
    """Use the client, which blocks, in a thread."""

    def run() -> T:
        with OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
            return question(client)

    return await trio.to_thread.run_sync(run)


async def test_a_whole_answer(store: Store) -> None:
    async with scripted_server(store, script()) as server:
        completion = await ask(server, lambda client: client.chat.completions.create(model="tiny", messages=MESSAGES))
    assert completion.choices[0].message.content == TEXT
    assert completion.choices[0].message.role == "assistant"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.model == "tiny"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == len(tokens_of(TEXT))
    assert completion.usage.prompt_tokens_details is not None
    assert completion.usage.prompt_tokens_details.cached_tokens == 0


async def test_a_streamed_answer(store: Store) -> None:
    def stream(client: OpenAI) -> list[Any]:
        return list(
            client.chat.completions.create(
                model="tiny", messages=MESSAGES, stream=True, stream_options={"include_usage": True}
            )
        )

    async with scripted_server(store, script()) as server:
        *chunks, usage = await ask(server, stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT
    assert [chunk.choices[0].finish_reason for chunk in chunks][-2:] == [None, "stop"]
    assert usage.choices == []
    assert usage.usage.completion_tokens == len(tokens_of(TEXT))


async def test_the_stream_helper(store: Store) -> None:
    def stream(client: OpenAI) -> tuple[str, str | None]:
        with client.chat.completions.stream(model="tiny", messages=MESSAGES) as events:
            text = "".join(event.delta for event in events if event.type == "content.delta")
            return text, events.get_final_completion().choices[0].message.content

    async with scripted_server(store, script()) as server:
        assert await ask(server, stream) == (TEXT, TEXT)


async def test_a_raw_response(store: Store) -> None:
    def create(client: OpenAI) -> tuple[str | None, Any]:
        response = client.chat.completions.with_raw_response.create(model="tiny", messages=MESSAGES)
        return response.headers.get("content-type"), response.parse()

    async with scripted_server(store, script()) as server:
        kind, completion = await ask(server, create)
    assert kind == "application/json"
    assert completion.choices[0].message.content == TEXT
    assert set(completion.model_extra) == {"hipfire"}


async def test_log_probabilities(store: Store) -> None:
    def create(client: OpenAI) -> Any:
        return client.chat.completions.create(model="tiny", messages=MESSAGES, logprobs=True, top_logprobs=1)

    async with scripted_server(store, script(logprobs=lambda token: (-0.5, ((token, -0.5),)))) as server:
        logprobs = (await ask(server, create)).choices[0].logprobs
    assert logprobs is not None
    assert bytes(byte for token in logprobs.content for byte in token.bytes).decode() == TEXT
    assert {token.logprob for token in logprobs.content} == {-0.5}
    assert all(token.top_logprobs[0].token == token.token for token in logprobs.content)


async def test_models(store: Store) -> None:
    async with scripted_server(store, script()) as server:
        assert await ask(server, lambda client: [model.id for model in client.models.list()]) == ["other", "tiny"]
        assert (await ask(server, lambda client: client.models.retrieve("tiny"))).id == "tiny"


@pytest.mark.parametrize(
    ("fields", "kind", "code"),
    [
        ({"model": "nobody"}, openai.NotFoundError, "model_not_found"),
        ({"temperature": 3}, openai.BadRequestError, "invalid_request"),
        ({"max_tokens": 1000}, openai.BadRequestError, "context_length_exceeded"),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "n", "schema": {"not": {}}, "strict": True},
                }
            },
            openai.BadRequestError,
            "unsupported",
        ),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_errors(
    store: Store, fields: dict[str, Any], kind: type[openai.APIStatusError], code: str, stream: bool
) -> None:
    def create(client: OpenAI) -> Any:
        return client.chat.completions.create(**{"model": "tiny", "messages": MESSAGES, "stream": stream, **fields})

    async with scripted_server(store, script()) as server:
        with pytest.raises(kind) as caught:
            await ask(server, create)
    assert caught.value.code == code


async def test_a_busy_server(store: Store) -> None:
    settings = some_settings(serve={"queue_timeout_ms": 1})
    async with (
        scripted_server(store, script(hold_after=0), settings=settings) as server,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(server.chat)
        while not server.engine.prompts():
            await trio.lowlevel.checkpoint()
        with pytest.raises(openai.InternalServerError) as caught:
            await ask(server, lambda client: client.chat.completions.create(model="tiny", messages=MESSAGES))
        assert (caught.value.status_code, caught.value.code) == (503, "server_busy")
        nursery.cancel_scope.cancel()


async def test_a_failure_in_the_middle_of_a_stream(store: Store) -> None:
    def stream(client: OpenAI) -> None:
        for _ in client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True):
            pass

    async with scripted_server(store, script(die_after=2)) as server:
        with pytest.raises(openai.APIError, match="engine stopped"):
            await ask(server, stream)


async def test_breaking_off_a_stream_stops_the_engine(store: Store) -> None:
    def begin(client: OpenAI) -> None:
        with client.chat.completions.create(model="tiny", messages=MESSAGES, stream=True) as chunks:
            next(chunks)

    async with scripted_server(store, script(hold_after=1)) as server:
        await ask(server, begin)
        while not server.engine.cancelled:
            await trio.lowlevel.checkpoint()


async def test_the_timeout_of_a_client_stops_the_engine(store: Store) -> None:
    def impatient(client: OpenAI) -> None:
        client.chat.completions.create(model="tiny", messages=MESSAGES, timeout=httpx.Timeout(0.3))

    async with scripted_server(store, script(hold_after=1)) as server:
        # The request must have come to the engine by the time that its client loses patience.
        await server.service.prewarm()
        with pytest.raises(openai.APITimeoutError):
            await ask(server, impatient)
        while not server.engine.cancelled:
            await trio.lowlevel.checkpoint()
