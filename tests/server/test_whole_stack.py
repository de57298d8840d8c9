"""Nothing scripted: server, service and an engine process of its own, on models small enough for that."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import attrs
import httpx
import jsonschema
import pytest
import trio
from chats import until
from scripted_server import a_chat
from scripted_service import models_in, some_settings
from sockets import connected, listening_socket

from hipfire.catalog.registry import Registry
from hipfire.catalog.store import Store
from hipfire.config.schema import Settings
from hipfire.server.app import run_server
from hipfire.service.engine_process import EngineProcess, spawn_engine
from hipfire.service.service import Service

# Starting Python and importing NumPy, on a busy machine.
PATIENCE_S = 60.0


@attrs.frozen(kw_only=True, eq=False)
class Stack:
    port: int
    service: Service
    client: httpx.AsyncClient
    processes: list[EngineProcess]

    async def answer(self, **fields: object) -> httpx.Response:
        return await self.client.post("/v1/chat/completions", json=a_chat(**{"temperature": 0, **fields}))


@asynccontextmanager
async def running(store: Store, settings: Settings) -> AsyncIterator[Stack]:
    sock = listening_socket()
    port = sock.getsockname()[1]
    processes: list[EngineProcess] = []

    async def spawn() -> EngineProcess:
        processes.append(await spawn_engine("warning"))
        return processes[-1]

    async with (
        trio.open_nursery() as nursery,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_S, verify=False) as client,
    ):
        service = Service(settings=settings, catalog=store, spawn=spawn)
        await nursery.start(service.run)
        await nursery.start(partial(run_server, service, [sock], settings, trio.Event()))
        with trio.fail_after(PATIENCE_S):
            yield Stack(port=port, service=service, client=client, processes=processes)
            await client.aclose()
        nursery.cancel_scope.cancel()
    for process in processes:
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


@pytest.mark.slow
async def test_answers_and_comes_back_after_the_engine_was_killed(tmp_path: Path) -> None:
    settings = some_settings(hardware={"device": "reference"})
    async with running(models_in(tmp_path, "tiny"), settings) as stack:
        first = (await stack.answer(max_tokens=5)).json()
        assert first["usage"]["completion_tokens"] <= 5
        assert first["model"] == "tiny"
        os.kill(stack.processes[0].pid, signal.SIGKILL)
        await until(lambda: stack.service.health().status == "restarting")
        again = (await stack.answer(max_tokens=5)).json()
        assert again["choices"] == first["choices"]
        assert (await stack.client.get("/health")).json()["status"] == "ok"
        assert len(stack.processes) == 2


@pytest.mark.slow
async def test_the_next_turn_of_a_conversation_finds_the_last_one(tmp_path: Path) -> None:
    async with running(models_in(tmp_path, "tiny"), some_settings()) as stack:
        messages: list[object] = [{"role": "user", "content": "hello there, how are you?"}]
        first = (await stack.answer(messages=messages, max_tokens=5)).json()
        messages += [first["choices"][0]["message"], {"role": "user", "content": "and now?"}]
        second = (await stack.answer(messages=messages, max_tokens=5)).json()
        assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert first["usage"]["prompt_tokens"] <= cached < second["usage"]["prompt_tokens"]
        counted = (await stack.client.get("/stats")).json()["prefix_cache"]
        assert counted == {"hits": 1, "tokens": cached}


@pytest.mark.slow
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
async def test_a_client_that_goes_in_a_long_prompt_frees_the_engine(smollm2_path: Path, stream: bool) -> None:
    store = Store(smollm2_path.parent, Registry(cards={}))
    settings = some_settings(serve={"default_model": smollm2_path.stem})
    body = json.dumps(a_chat(stream=stream, messages=[{"role": "user", "content": "word " * 1500}])).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    async with running(store, settings) as stack:
        await stack.answer(max_tokens=1)
        began_at = trio.current_time()
        async with connected(stack.port) as connection:
            await connection.send_all(head + body)
            await until(lambda: stack.service.admission.n_running == 1)
            with trio.move_on_after(0.2):
                # Into the prompt, which takes longer than this everywhere.
                await connection.receive_some()
        gone_at = trio.current_time()
        await until(lambda: stack.service.admission.n_running == 0)
        assert trio.current_time() - gone_at < 1.0
        assert gone_at - began_at < 5.0
        assert (await stack.answer(max_tokens=1)).status_code == 200
        assert stack.service.stats.n_cancelled == 1


@pytest.mark.slow
async def test_a_small_model_keeps_to_a_schema_and_calls_what_it_must(smollm2_path: Path) -> None:
    store = Store(smollm2_path.parent, Registry(cards={}))
    settings = some_settings(serve={"default_model": smollm2_path.stem}, memory={"max_seq": 2048})
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 20},
            "age": {"type": "integer", "minimum": 0, "maximum": 120},
            "mood": {"$ref": "#/$defs/mood"},
        },
        "required": ["name", "age", "mood"],
        "additionalProperties": False,
        "$defs": {"mood": {"enum": ["glad", "sad"]}},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    city = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 20}}, "required": ["city"]}
    tool = {
        "type": "function",
        "function": {"name": "get_weather", "parameters": {**city, "additionalProperties": False}},
    }
    async with running(store, settings) as stack:
        for seed in range(6):
            fields = {"temperature": 1, "seed": seed, "messages": [{"role": "user", "content": "Invent a person."}]}
            answer = await stack.answer(response_format=wanted, **fields)
            jsonschema.validate(json.loads(answer.json()["choices"][0]["message"]["content"]), schema)
        called = (await stack.answer(tools=[tool], tool_choice="required", parallel_tool_calls=False)).json()
        (call,) = called["choices"][0]["message"]["tool_calls"]
        assert call["function"]["name"] == "get_weather"
        jsonschema.validate(json.loads(call["function"]["arguments"]), city)
