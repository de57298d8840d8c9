"""Tool calls over HTTP: the rules of the API's section on them, one test each."""

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import OpenAI
from scripted_families import family_server, prompt_text
from scripted_service import tokens_of
from sockets import PATIENCE_S
from streams import stream
from trio import run, to_thread

WEATHER: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "zip": {"type": "string"}},
        },
    },
}
CALL = "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>"
OTHER = CALL.replace("Oslo", "Rome")
NO_THINKING = "</think>\n\n"


def call_with(value: str, name: str = "city") -> str:
    return CALL.replace("=city", f"={name}").replace("Oslo", value)


def arguments_of(message: dict[str, Any], index: int = 0) -> dict[str, Any]:
    arguments: dict[str, Any] = json.loads(message["tool_calls"][index]["function"]["arguments"])
    return arguments


async def answer(folder: Path, output: str, family: str = "qwen3.5", **fields: Any) -> tuple[dict[str, Any], str]:
    """The message and the finish reason, which a streamed answer has too."""
    thinks = NO_THINKING if family == "qwen3.5" else ""
    fields = {"tools": [WEATHER], **fields}
    async with family_server(folder, family, thinks + output) as server:
        body = (await server.chat(**fields)).json()
        streamed = await stream(server, **fields)
    (choice,) = body["choices"]
    message = choice["message"]
    assert streamed.content == (message["content"] or "")
    assert streamed.finish_reason == choice["finish_reason"]
    assert [call["function"] for call in streamed.calls] == [call["function"] for call in message.get("tool_calls", [])]
    return message, choice["finish_reason"]


async def test_a_call(tmp_path: Path) -> None:
    message, reason = await answer(tmp_path, CALL)
    (call,) = message["tool_calls"]
    assert (message["content"], reason, call["type"]) == (None, "tool_calls", "function")
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Oslo"})


async def test_each_call_has_its_own_id_and_in_a_stream_its_index(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", f"{NO_THINKING}{CALL}\n{OTHER}") as server:
        streamed = await stream(server, tools=[WEATHER])
    assert [call["index"] for call in streamed.calls] == [0, 1]
    assert len({call["id"] for call in streamed.calls}) == 2


async def test_calls_come_whole_in_the_last_chunk_before_the_finish(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", f"{NO_THINKING}I look.\n\n{CALL}\n{OTHER}") as server:
        streamed = await stream(server, tools=[WEATHER])
    assert streamed.content == "I look."
    assert streamed.keys[-2:] == [("tool_calls",), ()]
    assert streamed.keys.count(("tool_calls",)) == 1


async def test_values_have_the_types_of_the_schema(tmp_path: Path) -> None:
    output = CALL.replace(
        "</function>", "<parameter=days>\n3\n</parameter>\n<parameter=zip>\n0123\n</parameter>\n</function>"
    )
    message, _ = await answer(tmp_path, output)
    assert arguments_of(message) == {"city": "Oslo", "days": 3, "zip": "0123"}


@pytest.mark.parametrize(
    "value",
    ["</parameter>", "</tool_call>", CALL, "</parameter>\n</function>\n</tool_call>\nand on", " \t x \n\n", "é😀", ""],
)
async def test_text_in_an_argument_survives_byte_for_byte(tmp_path: Path, value: str) -> None:
    message, reason = await answer(tmp_path, call_with(value))
    assert arguments_of(message) == {"city": value}
    assert reason == "tool_calls"


async def test_one_call_where_parallel_ones_are_not_wanted(tmp_path: Path) -> None:
    message, reason = await answer(tmp_path, f"{CALL}\n{OTHER}", parallel_tool_calls=False)
    assert len(message["tool_calls"]) == 1
    assert arguments_of(message) == {"city": "Oslo"}
    assert reason == "tool_calls"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(CALL.replace("get_weather", "rm"), id="a tool that was not declared"),
        pytest.param(CALL.removesuffix("</tool_call>"), id="a call that does not end"),
        pytest.param("To call, write `<tool_call>` and `<function=get_weather>`.", id="prose about the syntax"),
        pytest.param("a <tool_call>\n<function=get_weather> b", id="half a call"),
    ],
)
async def test_markup_that_is_no_call_stays_content(tmp_path: Path, output: str) -> None:
    message, reason = await answer(tmp_path, output)
    assert message == {"role": "assistant", "content": output}
    assert reason == "stop"


@pytest.mark.parametrize("fields", [{"tools": None}, {"tools": []}, {"tool_choice": "none"}])
async def test_without_tools_there_are_no_calls(tmp_path: Path, fields: dict[str, Any]) -> None:
    message, reason = await answer(tmp_path, CALL, **fields)
    assert (message["content"], reason) == (CALL, "stop")
    async with family_server(tmp_path, "qwen3.5", "") as server:
        await server.chat(**{"tools": [WEATHER], **fields})
        assert not prompt_text(server).startswith("T:")


async def test_a_call_in_reasoning_is_reasoning(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", f"Maybe\n{CALL}\n</think>\n\nNo.") as server:
        message = (await server.chat(tools=[WEATHER])).json()["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "No.", "reasoning_content": f"Maybe\n{CALL}"}


async def test_out_of_tokens_in_a_call(tmp_path: Path) -> None:
    output = f"{NO_THINKING}I look.\n\n{CALL}"
    max_tokens = len(tokens_of(output)) - 5
    async with family_server(tmp_path, "qwen3.5", output) as server:
        (choice,) = (await server.chat(tools=[WEATHER], max_tokens=max_tokens)).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "I look."}


async def test_a_stop_string_is_not_looked_for_in_a_call(tmp_path: Path) -> None:
    message, reason = await answer(tmp_path, CALL, stop=["Oslo"])
    assert (arguments_of(message), reason) == ({"city": "Oslo"}, "tool_calls")


async def test_a_stop_string_ahead_of_a_call_ends_the_answer(tmp_path: Path) -> None:
    message, reason = await answer(tmp_path, f"I look. STOP {CALL}", stop=["STOP"])
    assert (message, reason) == ({"role": "assistant", "content": "I look. "}, "stop")


async def test_log_probabilities_are_of_the_answer_alone(tmp_path: Path) -> None:
    output = f"Hm.</think>\n\nYes.\n\n{CALL}"
    async with family_server(tmp_path, "qwen3.5", output, logprobs=lambda _: (-1.0, ())) as server:
        (choice,) = (await server.chat(tools=[WEATHER], logprobs=True)).json()["choices"]
    told = b"".join(bytes(token["bytes"]) for token in choice["logprobs"]["content"])
    assert told.strip() == b"Yes."


async def test_earlier_calls_and_results_reach_the_template(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": None,
            "reasoning_content": "I ask.",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Oslo"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "snow"}]},
    ]
    async with family_server(tmp_path, "qwen3.5", "") as server:
        await server.chat(messages=messages, tools=[WEATHER])
        prompt = prompt_text(server)
    assert prompt == f"T:get_weather,;u:Weather?;a:<think>\nI ask.\n</think>\n\n{CALL};t:snow;a:<think>\n"


async def test_a_template_without_tools_gets_them_told(tmp_path: Path) -> None:
    output = 'Sure.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
    messages = [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "c", "content": "which city?"},
        {"role": "assistant", "content": "Which?"},
        {"role": "user", "content": "Oslo"},
    ]
    message, reason = await answer(tmp_path, output, "plain", messages=messages)
    assert (message["content"], arguments_of(message), reason) == ("Sure.", {"city": "Oslo"}, "tool_calls")
    async with family_server(tmp_path, "plain", output) as server:
        await server.chat(messages=messages, tools=[WEATHER])
        prompt = prompt_text(server)
    assert json.dumps(WEATHER) in prompt
    assert "<tool_response>\nwhich city?\n</tool_response>" in prompt


pieces = st.sampled_from(
    ["</think>\n\n", "<think>", CALL, OTHER, "<tool_call>", "</tool_call>", "\n", "é", "text", "STOP", CALL[:-20]]
)


@given(output=st.lists(pieces, max_size=6).map("".join), stop=st.booleans(), max_tokens=st.integers(1, 300))
@settings(max_examples=20, deadline=None)
def test_a_stream_says_what_a_whole_answer_says(output: str, stop: bool, max_tokens: int) -> None:
    fields = {"tools": [WEATHER], "max_tokens": max_tokens, **({"stop": "STOP"} if stop else {})}
    with tempfile.TemporaryDirectory() as folder:
        run(compare, Path(folder), output, fields)


async def compare(folder: Path, output: str, fields: dict[str, Any]) -> None:
    async with family_server(folder, "qwen3.5", output) as server:
        body = (await server.chat(**fields)).json()
        streamed = await stream(server, **fields)
    (choice,) = body["choices"]
    message = choice["message"]
    assert streamed.content == (message["content"] or "")
    assert streamed.reasoning == message.get("reasoning_content", "")
    assert [call["function"] for call in streamed.calls] == [call["function"] for call in message.get("tool_calls", [])]
    assert (streamed.finish_reason, streamed.usage) == (choice["finish_reason"], body["usage"])


async def test_the_tool_loop_of_the_openai_client(tmp_path: Path) -> None:
    def converse(url: str) -> tuple[Any, list[Any]]:
        messages: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
        with OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=PATIENCE_S) as client:
            first = client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER])  # type: ignore[list-item]
            message = first.choices[0].message
            assert message.tool_calls is not None
            messages.append(message.model_dump(exclude_none=True))
            messages.append({"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "snow"})
            chunks = list(
                client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER], stream=True)  # type: ignore[list-item]
            )
        return message, chunks

    async with family_server(tmp_path, "qwen3.5", f"I ask.</think>\n\n{CALL}") as server:
        message, chunks = await to_thread.run_sync(converse, server.url)
        prompt = prompt_text(server)
    assert message.tool_calls[0].function.arguments == '{"city": "Oslo"}'
    assert message.reasoning_content == "I ask."
    assert f"<think>\nI ask.\n</think>\n\n{CALL};t:snow;a:" in prompt
    assert chunks[-1].choices[0].finish_reason == "tool_calls"
