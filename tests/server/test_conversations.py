"""Conversations that chat templates refuse, over HTTP: what the model is asked instead of an error.

The templates are in fixtures/templates, written for these tests after what vendors' templates insist on.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from scripted_engine import Script
from scripted_families import prompt_text
from scripted_server import scripted_server
from scripted_service import models_in, some_settings, tokens_of

TEMPLATES = Path(__file__).resolve().parents[2] / "fixtures" / "templates"
NAMES = sorted(path.stem for path in TEMPLATES.glob("*.jinja"))

SYSTEM, DEVELOPER = {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be brief."}
HELLO, AGAIN = {"role": "user", "content": "Hello there."}, {"role": "user", "content": "And again."}
HI = {"role": "assistant", "content": "Hi."}
PARTS = {"role": "user", "content": [{"type": "text", "text": "One, "}, {"type": "text", "text": "two."}]}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}


def call(*ids: str, **fields: Any) -> dict[str, Any]:
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    calls = [{"id": id_, "type": "function", "function": function} for id_ in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls, **fields}


def result(id_: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


CONVERSATIONS: dict[str, tuple[list[dict[str, Any]], Sequence[str]]] = {
    "system first": ([SYSTEM, HELLO], ["Be brief.", "Hello there."]),
    "developer": ([DEVELOPER, HELLO], ["Be brief.", "Hello there."]),
    "two systems": ([SYSTEM, {"role": "system", "content": "Be kind."}, HELLO], ["Be brief.", "Be kind.", "Hello"]),
    "a late system": ([HELLO, HI, SYSTEM, AGAIN], ["Hello there.", "Hi.", "Be brief.", "And again."]),
    "a system at the end": ([HELLO, SYSTEM], ["Hello there.", "Be brief."]),
    "nothing but system": ([SYSTEM], ["Be brief."]),
    "users in a row": ([HELLO, AGAIN], ["Hello there.", "And again."]),
    "assistants in a row": ([HELLO, HI, {"role": "assistant", "content": "How?"}, AGAIN], ["Hi.", "How?", "And"]),
    "an assistant first": ([HI, HELLO], ["Hi.", "Hello there."]),
    "an assistant last": ([HELLO, {"role": "assistant", "content": "Well, "}], ["Hello there.", "Well, "]),
    "parts": ([PARTS], ["One, two."]),
    "null content": ([HELLO, call("id1"), result("id1", "It snows."), AGAIN], ["Oslo", "It snows.", "And again."]),
    "two calls": (
        [HELLO, call("id1", "id2"), result("id1", "It snows."), result("id2", "It rains.")],
        ["Oslo", "It snows.", "It rains."],
    ),
    "a result of no call": ([HELLO, result("who", "It snows."), AGAIN], ["Hello there.", "It snows.", "And again."]),
    "a result without its call's id": (
        [HELLO, call("id1"), result("id9", "It snows.")],
        ["Hello there.", "Oslo", "It snows."],
    ),
    "a function's message": ([HELLO, {"role": "function", "name": "weather", "content": "It snows."}], ["It snows."]),
    "replayed reasoning": (
        [HELLO, {**HI, "reasoning_content": "I greet."}, AGAIN],
        ["Hello there.", "Hi.", "And again."],
    ),
    "replayed reasoning and calls": (
        [HELLO, call("id1", reasoning_content="I look."), result("id1", "It snows.")],
        ["Hello there.", "Oslo", "It snows."],
    ),
    "a system and calls": ([SYSTEM, HELLO, call("id1"), result("id1", "It snows.")], ["Be brief.", "Oslo", "It snow"]),
}  # fmt: skip


@pytest.mark.parametrize("template", NAMES)
async def test_nothing_that_was_said_is_lost(tmp_path: Path, template: str) -> None:
    path = TEMPLATES / f"{template}.jinja"
    source, settings = path.read_text(encoding="utf-8"), some_settings(prompt={"chat_template": str(path)})
    script = Script(tokens=tokens_of("Fine."), context_length=4096)
    async with scripted_server(models_in(tmp_path, "tiny"), script, settings=settings) as server:
        for name, (messages, parts) in CONVERSATIONS.items():
            reply = await server.chat(messages=messages, tools=[WEATHER])
            assert reply.status_code == 200, (name, reply.text)
            prompt, place = prompt_text(server), 0
            for part in parts:
                # In this order.
                assert part in prompt[place:], (name, part, prompt)
                place = prompt.index(part, place) + len(part)
            if "Oslo" in parts and "[call" in source:
                # A template that knows calls gets them as such.
                assert "[call" in prompt, (name, prompt)
            assert (prompt.endswith("Well, ")) == (name == "an assistant last"), name


@pytest.mark.parametrize("content", ["", [], None])
async def test_an_empty_turn_is_no_error(tmp_path: Path, content: object) -> None:
    messages = [HELLO, {**call("id1"), "content": content}, result("id1", "It snows.")]
    async with scripted_server(models_in(tmp_path, "tiny"), Script(tokens=tokens_of("Fine."))) as server:
        assert (await server.chat(messages=messages)).status_code == 200
