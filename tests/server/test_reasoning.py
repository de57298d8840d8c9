"""Reasoning over HTTP: the rules of its contract, one test each."""

from pathlib import Path
from typing import Any

import pytest
from scripted_families import family_server, prompt_text
from scripted_service import tokens_of
from streams import stream

THOUGHT = "Simple: 2+2=4."
OUTPUT = f"{THOUGHT}\n</think>\n\nIt is 4."


async def test_reasoning_and_answer_are_told_apart(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        body = (await server.chat()).json()
        streamed = await stream(server)
    message = body["choices"][0]["message"]
    assert message == {"role": "assistant", "content": "It is 4.", "reasoning_content": THOUGHT}
    assert (streamed.reasoning, streamed.content) == (THOUGHT, "It is 4.")
    assert set(streamed.keys) == {("role", "content"), ("reasoning_content",), ("content",), ()}


async def test_reasoning_tokens_are_counted(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        usage = (await server.chat()).json()["usage"]
        streamed = await stream(server)
    assert usage["completion_tokens"] == len(tokens_of(OUTPUT))
    assert usage["completion_tokens_details"] == {"reasoning_tokens": len(tokens_of(THOUGHT))}
    assert streamed.usage == usage


async def test_out_of_tokens_while_reasoning(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        (choice,) = (await server.chat(max_tokens=len(tokens_of(THOUGHT)))).json()["choices"]
    assert choice["finish_reason"] == "length"
    assert choice["message"] == {"role": "assistant", "content": "", "reasoning_content": THOUGHT}


async def test_a_stop_string_is_not_looked_for_in_reasoning(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        message = (await server.chat(stop=["2+2"])).json()["choices"][0]["message"]
        stopped = (await server.chat(stop=["is 4"])).json()["choices"][0]["message"]
    assert message["content"] == "It is 4."
    assert stopped["content"] == "It "


@pytest.mark.parametrize(
    "fields",
    [
        {"thinking": False},
        {"thinking": "off"},
        {"thinking": {"type": "disabled"}},
        {"chat_template_kwargs": {"enable_thinking": False}},
    ],
)
async def test_off_is_the_closed_block_of_the_template(tmp_path: Path, fields: dict[str, Any]) -> None:
    async with family_server(tmp_path, "qwen3.5", "It is 4.") as server:
        body = (await server.chat(**fields)).json()
        assert prompt_text(server).endswith("a:<think>\n\n</think>\n\n")
    assert body["choices"][0]["message"] == {"role": "assistant", "content": "It is 4."}
    assert body["hipfire"]["reasoning"] == {"mode": "off", "effort": None, "cap": None}


async def test_a_model_may_open_its_reasoning_itself(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3", f"<think>\n{OUTPUT}") as server:
        message = (await server.chat()).json()["choices"][0]["message"]
    assert (message["content"], message["reasoning_content"]) == ("It is 4.", THOUGHT)


async def test_effort_reaches_the_template(tmp_path: Path) -> None:
    async with family_server(tmp_path, "qwen3.8", OUTPUT) as server:
        prompts = []
        for fields in ({}, {"reasoning_effort": "low"}, {"reasoning": {"effort": "max"}}):
            body = (await server.chat(**fields)).json()
            prompts.append(prompt_text(server).partition(";")[0])
    assert prompts == ["E:xhigh", "E:low", "E:xhigh"]
    assert body["hipfire"]["reasoning"] == {"mode": "on", "effort": "xhigh", "cap": None}
    assert body["hipfire"]["config_warnings"] == ["reasoning.effort: 'max' is taken for 'xhigh'"]


async def test_what_a_family_does_not_have_is_warned_of(tmp_path: Path) -> None:
    async with family_server(tmp_path, "gemma4", "It is 4.") as server:
        body = (await server.chat(reasoning_effort="high", thinking=True)).json()
        streamed = await stream(server, reasoning_effort="high", thinking=True)
    assert body["hipfire"]["config_warnings"] == ["reasoning_effort: dropped, tiny does not know 'high'"]
    assert streamed.hipfire["config_warnings"] == body["hipfire"]["config_warnings"]
    assert streamed.hipfire["reasoning"] == {"mode": "on", "effort": None, "cap": None}


@pytest.mark.parametrize("fields", [{"max_think_tokens": 4}, {"reasoning": {"max_tokens": 4}}])
async def test_a_cap_closes_the_reasoning_and_the_answer_follows(tmp_path: Path, fields: dict[str, Any]) -> None:
    thought, forced, answer = "one two three four five six", "\n</think>\n\n", "Four."
    # What the model would have said meanwhile is lost.
    n_lost = len(tokens_of(forced))
    tokens = [*tokens_of(thought)[:4], *[0] * n_lost, *tokens_of(answer)]
    async with family_server(tmp_path, "qwen3.5", "", tokens=tokens) as server:
        body = (await server.chat(**fields)).json()
    message = body["choices"][0]["message"]
    assert message["content"] == answer
    assert thought.startswith(message["reasoning_content"])
    assert body["usage"]["completion_tokens_details"]["reasoning_tokens"] == 4
    assert body["hipfire"]["reasoning"] == {"mode": "on", "effort": None, "cap": 4}


async def test_thinking_can_be_kept_in_the_whole_answer(tmp_path: Path) -> None:
    fields = {"chat_template_kwargs": {"preserve_thinking": True}}
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        message = (await server.chat(**fields)).json()["choices"][0]["message"]
        streamed = await stream(server, **fields)
    assert message["content"] == f"<think>\n{THOUGHT}\n</think>\n\nIt is 4."
    assert streamed.content == "It is 4."


async def test_replayed_reasoning_goes_to_the_template(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "1"},
        {"role": "assistant", "content": "2", "reasoning_content": "hm"},
        {"role": "user", "content": "3"},
    ]
    async with family_server(tmp_path, "qwen3.5", OUTPUT) as server:
        await server.chat(messages=messages)
        assert prompt_text(server) == "u:1;a:<think>\nhm\n</think>\n\n2;u:3;a:<think>\n"


async def test_an_answer_that_was_begun_goes_on_behind_its_reasoning(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "1"}, {"role": "assistant", "content": "It "}]
    async with family_server(tmp_path, "qwen3.5", "is 4.") as server:
        message = (await server.chat(messages=messages)).json()["choices"][0]["message"]
        assert prompt_text(server).endswith("a:<think>\n\n</think>\n\nIt ")
    assert message == {"role": "assistant", "content": "is 4."}


async def test_what_is_set_holds_until_a_request_says_otherwise(tmp_path: Path) -> None:
    set_values = {"thinking": "off", "max_think_tokens": 4}
    async with family_server(tmp_path, "qwen3.5", "It is 4.", set_values=set_values) as server:
        off = (await server.chat()).json()["hipfire"]
        assert prompt_text(server).endswith("a:<think>\n\n</think>\n\n")
        on = (await server.chat(thinking=True)).json()["hipfire"]
        assert prompt_text(server).endswith("a:<think>\n")
        uncapped = (await server.chat(thinking=True, max_think_tokens=0)).json()["hipfire"]
    assert off["config_warnings"] == ["max_think_tokens (a setting): dropped, reasoning is off"]
    assert off["reasoning"] == {"mode": "off", "effort": None, "cap": None}
    assert on["reasoning"] == {"mode": "on", "effort": None, "cap": 4}
    assert uncapped["reasoning"] == {"mode": "on", "effort": None, "cap": None}
    assert "config_warnings" not in on


async def test_what_is_set_and_a_family_does_not_have_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with family_server(tmp_path, "gemma4", "It is 4.", set_values={"thinking_budget": "low"}) as server:
        hipfire = (await server.chat(thinking=True)).json()["hipfire"]
    (warning,) = hipfire["config_warnings"]
    assert warning == "thinking_budget (a setting): dropped, tiny does not take it"
    assert f"[WARN: INVALID CONFIG] {warning}" in caplog.messages
