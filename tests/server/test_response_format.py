"""`response_format` and forced calls over HTTP, with an engine that says what it is told to."""

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

import httpx
import pydantic
import pytest
import trio
from chats import hello, until
from openai import OpenAI
from scripted_engine import Script
from scripted_families import family_server
from scripted_server import ScriptedServer, scripted_server
from scripted_service import some_settings, tiny_tokenizer, tokens_of
from sockets import PATIENCE_S

from hipfire.catalog.store import Store
from hipfire.errors import InvalidRequest
from hipfire.grammar.matcher import TokenTable
from hipfire.grammar.tokens import unpack_tokens
from hipfire.service.schema_check import compile_apart
from hipfire.wire.messages import Generate, Load, Vocabulary

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
TIME: dict[str, Any] = {"type": "function", "function": {"name": "get_time"}}
NAMED = {"type": "function", "function": {"name": "get_time"}}
CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
TIME_CALL = '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>'


def schema_format(schema: object, **fields: object) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "n", "schema": schema, **fields}}


def takes(server: ScriptedServer, said: str, *, index: int = -1) -> bool:
    """Whether the engine was told to let this be a whole answer."""
    grammar = server.engine.prompts()[index].grammar
    (told,) = (message for message in server.engine.heard if isinstance(message, Vocabulary))
    assert grammar is not None
    constraint = TokenTable(unpack_tokens(told.lengths, told.data), end_ids=told.end_ids).constrain(grammar)
    try:
        for token in (*tokens_of(said), min(tiny_tokenizer().eos_ids)):
            if token in tiny_tokenizer().eos_ids and constraint.is_complete:
                return True
            constraint.accept(token)
    except InvalidRequest:
        return False
    return True


async def test_free_text_has_no_grammar(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        assert (await server.chat(response_format={"type": "text"})).status_code == 200
        assert [type(message) for message in server.engine.heard] == [Load, Generate]
        assert server.engine.prompts()[0].grammar is None


async def test_json_object(store: Store) -> None:
    async with scripted_server(store, Script(tokens=tokens_of('{"a": 1}'))) as server:
        answer = await server.chat(response_format={"type": "json_object"})
        assert answer.json()["choices"][0]["message"]["content"] == '{"a": 1}'
        assert takes(server, '{"a": [1, {"b": null}]}')
        assert not takes(server, "[1]")
        assert not takes(server, '{"a": 1')
        assert not takes(server, '{"a": 1} ')


@pytest.mark.parametrize("strict", [True, False, None])
async def test_json_schema(store: Store, strict: bool | None) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    }
    async with scripted_server(store, hello()) as server:
        assert (await server.chat(response_format=schema_format(schema, strict=strict))).status_code == 200
        assert takes(server, '{"n": 7}')
        assert not takes(server, '{"n": "7"}')
        assert not takes(server, '{"n": 7, "m": 8}')
        assert not takes(server, "{}")


async def test_the_engine_is_told_of_the_tokens_once_for_each_load(store: Store) -> None:
    async with scripted_server(store, hello()) as server:
        for model in ("tiny", "tiny", "other", "tiny"):
            await server.chat(model=model, response_format={"type": "json_object"})
        await server.chat()
        told = [type(message) for message in server.engine.heard if not type(message).__name__.startswith("Unl")]
    one = [Vocabulary, Generate]
    assert told == [Load, *one, Generate, Load, *one, Load, *one, Generate]


async def test_what_cannot_be_heeded(store: Store) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    async with scripted_server(store, hello()) as server:
        answer = await server.chat(response_format=schema_format(schema))
        assert "uniqueItems" in answer.json()["hipfire"]["config_warnings"][0]
        assert takes(server, "[1, 1]")
        refused = await server.chat(response_format=schema_format(schema, strict=True))
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["code"], error["param"]) == ("unsupported", "response_format.json_schema.schema")
    assert "uniqueItems" in error["message"]


HOSTILE: dict[str, Any] = {
    "60,000 nested groups": {"type": "string", "pattern": "(" * 60_000 + "a" + ")" * 60_000},
    "ten megabytes": {"const": "x" * 10_000_000},
    # Passes the look at it, and then takes the compiler more than its time.
    "many properties": {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(6_000)}},
}


@pytest.mark.parametrize("schema", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_schema_is_refused_before_the_queue_and_health_answers_meanwhile(
    store: Store, schema: dict[str, Any]
) -> None:
    settings = some_settings(serve={"max_queue": 1})
    own_s = 0.0
    async with (
        scripted_server(store, hello(hold_after=0), settings=settings, compile_schemas=compile_apart) as server,
        trio.open_nursery() as nursery,
    ):
        for _ in range(2):
            nursery.start_soon(server.chat)
        await until(lambda: server.service.admission.n_waiting == 1)
        refused = trio.Event()

        async def watch() -> None:
            nonlocal own_s
            while not refused.is_set():
                start = time.thread_time()
                assert (await server.client.get("/health")).status_code == 200
                own_s = max(own_s, time.thread_time() - start)

        nursery.start_soon(watch)
        answer = await server.chat(response_format=schema_format(schema))
        refused.set()
        server.engine.script.go.set()
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_request"
    assert answer.json()["error"]["param"] == "response_format.json_schema.schema"
    # What this thread, which is the server's and its clients', did while one look at its health was answered.
    assert own_s < 0.5


async def test_required_tools(tmp_path: Path) -> None:
    async with family_server(tmp_path, "hermes", CALL) as server:
        answer = await server.chat(tools=[WEATHER, TIME], tool_choice="required")
        (choice,) = answer.json()["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert takes(server, CALL)
        assert takes(server, TIME_CALL)
        assert takes(server, f"{CALL}\n{TIME_CALL}")
        assert not takes(server, "Hello")
        assert not takes(server, CALL.replace('"Oslo"', "7"))
        assert not takes(server, CALL.replace("get_weather", "get_whether"))


async def test_one_call_at_most(tmp_path: Path) -> None:
    async with family_server(tmp_path, "hermes", TIME_CALL) as server:
        for fields in ({"tool_choice": "required", "parallel_tool_calls": False}, {"tool_choice": NAMED}):
            assert (await server.chat(tools=[WEATHER, TIME], **fields)).status_code == 200
            assert takes(server, TIME_CALL)
            assert not takes(server, f"{TIME_CALL}\n{TIME_CALL}")
            assert takes(server, CALL) is (fields["tool_choice"] == "required")


async def test_a_forced_call_of_a_reasoning_family_comes_behind_the_reasoning(tmp_path: Path) -> None:
    call = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
    async with family_server(tmp_path, "qwen3.5", f"Hm, {{.</think>\n\n{call}") as server:
        answer = await server.chat(tools=[WEATHER], tool_choice="required", max_think_tokens=40)
        (choice,) = answer.json()["choices"]
        assert choice["message"]["reasoning_content"] == "Hm, {."
        assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Oslo"}'
        assert takes(server, f"I think.\n</think>\n\n{call}")
        assert not takes(server, call)
        cap = server.engine.prompts()[0].cap
        assert cap is not None
        assert takes(server, f"Hm{bytes_of(cap.forced_ids)}{call}")


def bytes_of(tokens: Iterable[int]) -> str:
    return b"".join(map(tiny_tokenizer().token_bytes, tokens)).decode()


async def test_an_answer_in_json_comes_behind_the_reasoning(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3", "<think>\nHm.\n</think>\n\n{}") as server:
        wanted = {"type": "json_object"}
        answer = await server.chat(response_format=wanted)
        assert answer.json()["choices"][0]["message"]["content"] == "{}"
        assert takes(server, "<think>\nHm.\n</think>\n\n{}")
        assert takes(server, "{}")
        await server.chat(response_format=wanted, thinking=False)
        assert takes(server, "{}")
        assert not takes(server, "<think>\nHm.\n</think>\n\n{}")


async def test_tools_and_a_form_of_the_answer(tmp_path: Path) -> None:
    async with family_server(tmp_path, "hermes", CALL) as server:
        await server.chat(tools=[WEATHER], response_format={"type": "json_object"})
        assert takes(server, CALL)
        assert takes(server, "{}")
        assert not takes(server, "Hello")
        await server.chat(tools=[WEATHER], tool_choice="none", response_format={"type": "json_object"})
        assert not takes(server, CALL)


@pytest.mark.parametrize(
    ("family", "fields", "param"),
    [
        ("gemma4", {"tool_choice": "required"}, "tool_choice"),
        ("gemma4", {"response_format": {"type": "json_object"}}, "response_format"),
        (
            "hermes",
            {
                "response_format": {"type": "json_object"},
                "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "{"}],
            },
            "response_format",
        ),
    ],
)
async def test_what_cannot_be_forced_is_said(tmp_path: Path, family: str, fields: dict[str, Any], param: str) -> None:
    lists = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"a": {"type": "array"}}}}}
    async with family_server(tmp_path, family, "Hello") as server:
        answer = await server.chat(tools=[lists], **fields)
        assert server.engine.prompts() == []
    assert answer.status_code == 400
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("unsupported", param)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_constraint_that_fails_in_the_middle_is_told(store: Store, stream: bool) -> None:
    script = hello(fail=("invalid_request", "cannot be followed further"), fail_after=3)
    async with scripted_server(store, script) as server:
        answer = await server.chat(response_format={"type": "json_object"}, stream=stream)
    if stream:
        frames = [line.removeprefix("data: ") for line in answer.text.split("\n\n")]
        assert (answer.status_code, frames[-2]) == (200, "[DONE]")
        error = json.loads(frames[-3])["error"]
    else:
        assert answer.status_code == 400
        error = answer.json()["error"]
    assert (error["code"], error["message"]) == ("invalid_request", "cannot be followed further")


class Step(pydantic.BaseModel):
    explanation: str
    output: float | None


class Node(pydantic.BaseModel):
    value: Literal["a", "b"] = "a"
    children: list["Node"]


class Solution(pydantic.BaseModel):
    steps: list[Step]
    tree: Node
    kind: Literal["easy", "hard"]
    choice: Step | Node


SOLUTION = (
    '{"steps": [{"explanation": "x", "output": null}], "tree": {"value": "b", "children": [{"value": "a", "children":'
    ' []}]}, "kind": "easy", "choice": {"explanation": "y", "output": 1.5}}'
)


async def test_pydantic_models_by_the_real_client(store: Store) -> None:
    def parse(url: str) -> Solution | None:
        http_client = httpx.Client(verify=False)
        with OpenAI(
            base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S, http_client=http_client
        ) as client:
            messages: list[Any] = [{"role": "user", "content": "hi"}]
            completion = client.chat.completions.parse(model="tiny", messages=messages, response_format=Solution)
            return completion.choices[0].message.parsed

    async with scripted_server(store, Script(tokens=tokens_of(SOLUTION), context_length=2048)) as server:
        solution = await trio.to_thread.run_sync(parse, server.url)
        assert takes(server, SOLUTION)
        assert not takes(server, SOLUTION.replace("easy", "soft"))
        assert not takes(server, SOLUTION.replace('"output": null', '"output": "null"'))
        assert not takes(server, SOLUTION.replace('"children": []', '"children": [7]'))
    assert solution is not None
    assert solution.tree.children == [Node(value="a", children=[])]
