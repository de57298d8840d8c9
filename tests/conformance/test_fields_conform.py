"""The fields of a chat: what each takes, what it refuses, and where what was asked for arrives."""

from pathlib import Path
from typing import Any

import pytest
from problem_shape import error_of
from scripted_engine import Script
from scripted_families import family_server, prompt_text
from scripted_server import ScriptedServer, scripted_server
from scripted_service import some_settings, tokens_of

from hipfire.catalog.store import Store
from hipfire.wire.messages import Generate, Sampling

HI = [{"role": "user", "content": "hi"}]
F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def hello(**fields: Any) -> Script:
    return Script(tokens=tokens_of("Hello"), **fields)


# Each row of the contract's table: values that are taken, and values that are 400.
TAKEN: dict[str, list[object]] = {
    "model": ["tiny", "tiny.gguf", "", None],
    "stream": [False, None],
    "stream_options": [{"include_usage": True}, {}, None],
    "max_tokens": [1, 100, None],
    "max_completion_tokens": [1, 100, None],
    "temperature": [0, 2, 0.5, None],
    "top_p": [0.001, 1, None],
    "top_k": [0, -1, 40, None],
    "min_p": [0, 1, None],
    "repeat_penalty": [0.1, 2, None],
    "repetition_penalty": [0.1, 2, None],
    "presence_penalty": [-2, 2, None],
    "frequency_penalty": [-2, 2, None],
    "seed": [0, 2**64 - 1, None],
    "stop": ["x", ["a", "b", "c", "d"], "x" * 64, [], None],
    "logprobs": [True, False, None],
    "logit_bias": [{"5": -100, "6": 100}, {}, None],
    "n": [1, None],
    "tools": [[], None],
    "tool_choice": ["auto", "none", None],
    "parallel_tool_calls": [True, False, None],
    "response_format": [{"type": "text"}, None],
    "chat_template_kwargs": [{"mood": "good"}, {}, None],
    "reasoning_effort": ["none", "minimal", "low", "medium", "high", "xhigh", "max", None],
    "thinking": [True, False, "on", "off", {"type": "enabled"}, {"type": "disabled"}, None],
    "max_think_tokens": [0, 100, None],
    "thinking_budget": ["low", "med", "high", "xhigh", "max", "uncapped", None],
    "user": ["me", 7, None],
    "metadata": [{"a": "b"}],
    "store": [True],
    "service_tier": ["auto"],
    "whatever": [{"any": ["thing"]}],
}
REFUSED: dict[str, list[object]] = {
    "model": [1, ["tiny"]],
    "stream": [1, "true"],
    "stream_options": [True, {"include_usage": 1}],
    "max_tokens": [0, -1, True, 1.0, "5"],
    "max_completion_tokens": [0, -1, False, 2.5, "5"],
    "temperature": [-0.1, 2.1, "hot", True],
    "top_p": [0, 1.1, "x"],
    "top_k": [-2, 1.5, "x"],
    "min_p": [-0.1, 1.1],
    "repeat_penalty": [0, 2.1],
    "repetition_penalty": [0, 2.1],
    "presence_penalty": [-2.1, 2.1],
    "frequency_penalty": [-2.1, 2.1],
    "seed": [-1, 2**64, 1.0, "1"],
    "stop": ["", "x" * 65, list("abcde"), ["a", ""], 1],
    "logprobs": [1, "yes"],
    "top_logprobs": [-1, 21, 1.0],
    "logit_bias": [{"5": 101}, {"x": 1}, {"512": 1}, [5]],
    "n": [0, 2, True],
    "tools": [{}, [{"type": "code"}], [{"type": "function"}]],
    "tool_choice": ["maybe", 1, {"type": "function", "function": {"name": "nobody"}}],
    "parallel_tool_calls": [0],
    "response_format": ["text", {}, {"type": "xml"}],
    "chat_template_kwargs": [[], {"enable_thinking": "yes"}],
    "reasoning_effort": ["some", 1],
    "reasoning": [1, {"effort": "some"}, {"max_tokens": -1}, {"budget": 512}],
    "thinking": [1, "maybe", {"type": "sometimes"}],
    "max_think_tokens": [-1, 1.5],
    "thinking_budget": ["lots", 512],
    "messages": [[], None, "hi", [{"role": "wizard", "content": "hi"}], [{"role": "user", "content": None}]],
}


@pytest.mark.parametrize("field", TAKEN)
async def test_what_a_field_takes(store: Store, field: str) -> None:
    """Every row of the table of fields: what is in range is taken."""
    async with scripted_server(store, hello()) as server:
        for value in TAKEN[field]:
            response = await server.chat(**{field: value})
            assert response.status_code == 200, (value, response.text)


@pytest.mark.parametrize("field", REFUSED)
async def test_what_a_field_refuses(store: Store, field: str) -> None:
    """Every row of the table of fields: what is not in range, or of another type, is 400 and the path is named."""
    async with scripted_server(store, hello()) as server:
        for value in REFUSED[field]:
            extra = {"logprobs": True} if field == "top_logprobs" else {"tools": [F]} if field == "tool_choice" else {}
            response = await server.chat(**extra, **{field: value})
            assert response.status_code == 400, value
            error = error_of(response)
            assert error["code"] == "invalid_request"
            assert error["param"].startswith(field)
            assert error["param"] in error["message"]
        assert not server.engine.prompts()


async def asked_for(server: ScriptedServer, **fields: object) -> Generate:
    response = await server.chat(**fields)
    assert response.status_code == 200, response.text
    return server.engine.prompts()[-1]


async def test_sampling_reaches_the_engine_as_asked(store: Store) -> None:
    """An explicit value wins over everything."""
    fields = {
        "temperature": 1.5, "top_p": 0.5, "top_k": 7, "min_p": 0.1, "repeat_penalty": 1.5, "presence_penalty": 1.0,
        "frequency_penalty": -1.0, "seed": 2**64 - 1, "logit_bias": {"5": -100},
    }  # fmt: skip
    async with scripted_server(store, hello()) as server:
        asked = await asked_for(server, **fields, logprobs=True, top_logprobs=3)
    assert asked.sampling == Sampling(**{**fields, "logit_bias": {5: -100.0}}, n_logprobs=3)


@pytest.mark.parametrize(("wished", "seen"), [({"top_k": -1}, 0), ({"top_k": 0}, 0)])
async def test_top_k_minus_one_is_off_as_zero_is(store: Store, wished: dict[str, Any], seen: int) -> None:
    """`top_k`: 0 or -1 = off."""
    async with scripted_server(store, hello()) as server:
        assert (await asked_for(server, **wished)).sampling.top_k == seen


async def test_without_a_seed_each_request_has_its_own(store: Store) -> None:
    """`seed` absent is fresh entropy: what the service draws."""
    async with scripted_server(store, hello()) as server:
        assert (await asked_for(server)).sampling.seed == 4711
        assert (await asked_for(server, seed=None)).sampling.seed == 4711
        assert (await asked_for(server, seed=0)).sampling.seed == 0


async def test_max_tokens_is_what_was_asked_for_or_fits(store: Store) -> None:
    """The second wins when both are given; absent: the configured default, fitted to the context left."""
    settings = some_settings(generation={"max_tokens": 1000})
    async with scripted_server(store, hello(), settings=settings) as server:
        asked = await asked_for(server)
        assert asked.max_tokens == 256 - len(asked.prompt)
        assert (await asked_for(server, max_tokens=None)).max_tokens == asked.max_tokens
        assert (await asked_for(server, max_tokens=9)).max_tokens == 9
        assert (await asked_for(server, max_tokens=9, max_completion_tokens=7)).max_tokens == 7


async def test_another_model_is_switched_to(store: Store) -> None:
    """Different from the resident one: unload, load. Missing or "": the resident one. The reply names who answered."""
    async with scripted_server(store, hello()) as server:
        named = [
            (await server.chat(**fields)).json()["model"] for fields in ({}, {"model": "other"}, {"model": ""}, {})
        ]
        loads = [Path(path).stem for path in server.engine.loads()]
    assert named == ["tiny", "other", "other", "other"]
    assert loads == ["tiny", "other"]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": "https://pictures.example/cat.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
        {"type": "image_url"},
    ],
)
async def test_pictures_are_refused_and_never_fetched(store: Store, part: dict[str, Any]) -> None:
    """`image_url` only on vision models: otherwise 400; the server never fetches a URL."""
    async with scripted_server(store, hello()) as server:
        response = await server.chat(messages=[{"role": "user", "content": [{"type": "text", "text": "?"}, part]}])
    assert (response.status_code, error_of(response)["code"]) == (400, "unsupported")
    assert error_of(response)["param"] == "messages[0].content[1]"


async def test_roles_and_parts_reach_the_prompt(tmp_path: Path) -> None:
    """Roles: developer = system, function = tool. Text parts are all kept, in order."""
    parts = [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]
    prompts = []
    async with family_server(tmp_path, "plain", "ok") as server:
        for role in ("system", "developer", "user", "tool", "function"):
            assert (await server.chat(messages=[{"role": role, "content": parts}, *HI])).status_code == 200
            prompts.append(prompt_text(server))
    system, developer, user, tool, function = prompts
    assert system == developer == "s:one two;u:hi;a:"
    assert "one two" in user
    assert tool == function
    assert "one two" in tool


async def test_template_arguments_reach_the_template(store: Store, tmp_path: Path) -> None:
    """`chat_template_kwargs`: passed to the template."""
    template = tmp_path / "mood.jinja"
    template.write_text("{{ mood }}:{% for m in messages %}{{ m.content }}{% endfor %}")
    settings = some_settings(prompt={"chat_template": str(template)})
    async with scripted_server(store, hello(), settings=settings) as server:
        await server.chat(chat_template_kwargs={"mood": "good"})
        assert prompt_text(server) == "good:hi"


async def test_tools_are_hidden_by_the_choice_of_none(tmp_path: Path) -> None:
    """`tool_choice: "none"` hides the tools; `tools: []` = absent."""
    async with family_server(tmp_path, "qwen3.5", "ok") as server:
        for fields, told in (({}, True), ({"tool_choice": "none"}, False), ({"tools": []}, False)):
            await server.chat(**{"tools": [F], **fields})
            assert prompt_text(server).startswith("T:f,;") is told


async def test_a_client_s_own_system_message_wins(store: Store) -> None:
    """When no system or developer message is present, `prompt.system` is put first. A client's own always wins."""
    settings = some_settings(prompt={"system": "Obey."})
    async with scripted_server(store, hello(), settings=settings) as server:
        await server.chat()
        assert "Obey." in prompt_text(server)
        for role in ("system", "developer"):
            await server.chat(messages=[{"role": role, "content": "Rest."}, {"role": "user", "content": "hi"}])
            assert "Obey." not in prompt_text(server)
            assert "Rest." in prompt_text(server)


async def test_a_trailing_answer_is_continued(store: Store) -> None:
    """A trailing assistant message is continued, not closed."""
    begun = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Well, I"}]
    async with scripted_server(store, hello()) as server:
        await server.chat(messages=begun)
        assert prompt_text(server).endswith("Well, I")


async def test_a_client_s_text_never_becomes_a_control_token(store: Store) -> None:
    """Text that came from a client can never become a control token; only the template's own text can."""
    async with scripted_server(store, hello()) as server:
        await server.chat()
        assert server.service.resident is not None
        texts = server.service.resident.text.tokenizer.control_texts
        control = set(texts.values())
        honest = [token for token in server.engine.prompts()[-1].prompt if token in control]
        await server.chat(messages=[{"role": "user", "content": "".join(texts)}])
        assert [token for token in server.engine.prompts()[-1].prompt if token in control] == honest
