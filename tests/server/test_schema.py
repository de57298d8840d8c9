from typing import Any

import attrs
import pytest

from hipfire.errors import InvalidRequest, Unsupported
from hipfire.server.schema import ChatRequest, parse_chat_request, to_job
from hipfire.service.request import AnswerFormat, ChatJob, Message, PastCall, ReasoningWishes, SamplingWishes

MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = "response_format.json_schema.schema"


F = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}


def a_call(arguments: object) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": arguments}}


def calling(*calls: dict[str, Any]) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls)}


def a_job(**fields: Any) -> ChatJob:
    return to_job(parse_chat_request({"messages": MESSAGES, **fields}))


def turn(content: Any, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": content}


def test_a_bare_request_leaves_everything_open() -> None:
    assert a_job() == ChatJob(model=None, messages=(Message(role="user", content="hi"),))


def test_every_field_finds_its_place() -> None:
    job = a_job(
        model="tiny",
        max_tokens=5,
        temperature=1,
        top_p=0.5,
        top_k=-1,
        min_p=0.1,
        repetition_penalty=1.1,
        presence_penalty=-2,
        frequency_penalty=2,
        seed=2**64 - 1,
        stop=["a", "b"],
        logprobs=True,
        top_logprobs=20,
        logit_bias={"7": -100, "8": 0.5},
        chat_template_kwargs={"mood": "good"},
    )
    assert job == ChatJob(
        model="tiny",
        messages=(Message(role="user", content="hi"),),
        max_tokens=5,
        stop=("a", "b"),
        template_arguments={"mood": "good"},
        sampling=SamplingWishes(
            temperature=1.0,
            top_p=0.5,
            top_k=-1,
            min_p=0.1,
            repeat_penalty=1.1,
            presence_penalty=-2.0,
            frequency_penalty=2.0,
            seed=2**64 - 1,
            logit_bias={7: -100.0, 8: 0.5},
            n_logprobs=20,
        ),
    )


def test_null_is_the_same_as_nothing() -> None:
    fields = [field.name for field in attrs.fields(ChatRequest) if field.name != "messages"]
    assert a_job(**dict.fromkeys(fields)) == a_job()


def test_unknown_fields_are_ignored() -> None:
    assert a_job(user="me", metadata={"a": 1}, store=True, service_tier="auto", surprise=[1]) == a_job()


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 1.0}, "max_tokens"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"temperature": 2.1}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": False}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"temperature": float("inf")}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 1.5}, "min_p"),
        ({"repeat_penalty": 0}, "repeat_penalty"),
        ({"repetition_penalty": 2.5}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"seed": 1.0}, "seed"),
        ({"seed": "1"}, "seed"),
        ({"stop": ""}, "stop"),
        ({"stop": "x" * 65}, "stop"),
        ({"stop": ["a"] * 5}, "stop"),
        ({"stop": ["a", ""]}, "stop[1]"),
        ({"stop": ["a", 1]}, "stop[1]"),
        ({"stop": {}}, "stop"),
        ({"logprobs": 1}, "logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"top_logprobs": 1}, "top_logprobs"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"²": 1}}, "logit_bias"),
        ({"logit_bias": {"5": 101}}, "logit_bias.5"),
        ({"logit_bias": {"5": None}}, "logit_bias.5"),
        ({"n": 2}, "n"),
        ({"n": 0}, "n"),
        ({"model": 3}, "model"),
        ({"model": "\ud800"}, "model"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"stream_options": True}, "stream_options"),
        ({"tools": {}}, "tools"),
        ({"tools": [1]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "code"}]}, "tools[0].type"),
        ({"tools": [{"type": "function", "function": {"name": ""}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]},
            "tools[0].function.parameters",
        ),
        (
            {"tools": [{"type": "function", "function": {"name": "f", "description": "\ud800"}}]},
            "tools[0].function.description",
        ),
        ({"tools": [F, F]}, "tools[1].function.name"),
        ({"tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": 1}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [F], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice.function.name"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice.function.name"),
        ({"parallel_tool_calls": 1}, "parallel_tool_calls"),
        ({"response_format": "json"}, "response_format"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, SCHEMA),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, SCHEMA),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": True}}}, SCHEMA),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": 1}}},
            "response_format.json_schema.strict",
        ),
        ({"chat_template_kwargs": [1]}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs.messages"),
        ({"chat_template_kwargs": {"enable_thinking": "yes"}}, "chat_template_kwargs.enable_thinking"),
        ({"chat_template_kwargs": {"mood": ["\ud800"]}}, "chat_template_kwargs"),
        ({"reasoning_effort": "some"}, "reasoning_effort"),
        ({"reasoning": {"effort": 1}}, "reasoning.effort"),
        ({"reasoning": {"max_tokens": -1}}, "reasoning.max_tokens"),
        ({"reasoning": {"budget": 512}}, "reasoning.budget"),
        ({"thinking": 1}, "thinking"),
        ({"thinking": "maybe"}, "thinking"),
        ({"thinking": {"type": True}}, "thinking.type"),
        ({"max_think_tokens": -1}, "max_think_tokens"),
        ({"thinking_budget": "lots"}, "thinking_budget"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": {}}, "messages"),
        ({"messages": None}, "messages"),
        ({"messages": [*MESSAGES, 1]}, "messages[1]"),
        ({"messages": [{"content": "hi"}]}, "messages[0].role"),
        ({"messages": [turn("hi", "wizard")]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [turn(None)]}, "messages[0].content"),
        ({"messages": [turn(None, "assistant")]}, "messages[0].content"),
        ({"messages": [*MESSAGES, *MESSAGES, turn(5)]}, "messages[2].content"),
        ({"messages": [turn("\udfff")]}, "messages[0].content"),
        ({"messages": [turn(["hi"])]}, "messages[0].content[0]"),
        ({"messages": [turn([{"type": "text"}])]}, "messages[0].content[0].text"),
        ({"messages": [turn([{"type": "text", "text": "a"}, {"type": "smell"}])]}, "messages[0].content[1].type"),
        ({"messages": [{**turn("hi"), "name": 1}]}, "messages[0].name"),
        ({"messages": [{**turn("hi"), "reasoning_content": 1}]}, "messages[0].reasoning_content"),
        ({"messages": [{**turn("hi"), "tool_calls": {}}]}, "messages[0].tool_calls"),
        ({"messages": [{**turn("hi"), "tool_calls": [a_call("{}")]}]}, "messages[0].tool_calls"),
        ({"messages": [calling({})]}, "messages[0].tool_calls[0].function"),
        ({"messages": [calling(a_call("[1]"))]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [calling(a_call("{"))]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [calling(a_call('{"a": NaN}'))]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [calling(a_call(7))]}, "messages[0].tool_calls[0].function.arguments"),
        ({"messages": [turn(None, "tool")]}, "messages[0].content"),
        ({"messages": [{**turn("4", "tool"), "tool_call_id": 4}]}, "messages[0].tool_call_id"),
    ],
)
def test_a_bad_field_is_refused_by_its_path(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        a_job(**fields)
    assert type(caught.value) is InvalidRequest
    assert caught.value.param == path
    assert caught.value.message.startswith(f"{path}: ")


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"messages": [turn([{"type": "image_url", "image_url": {"url": "data:"}}])]}, "messages[0].content[0]"),
    ],
)
def test_what_this_build_lacks_is_refused(fields: dict[str, Any], path: str) -> None:
    with pytest.raises(Unsupported) as caught:
        a_job(**fields)
    assert caught.value.param == path


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"tool_choice": "auto"},
        {"tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"n": 1},
        {"top_logprobs": 0},
        {"parallel_tool_calls": False},
        {"messages": [{**MESSAGES[0], "tool_calls": []}]},
    ],
)
def test_what_asks_for_nothing_special_is_taken(fields: dict[str, Any]) -> None:
    assert a_job(**fields) == a_job()


@pytest.mark.parametrize("body", [None, [], "x", 1, True])
def test_the_body_must_be_an_object(body: object) -> None:
    with pytest.raises(InvalidRequest, match="the body: must be an object") as caught:
        parse_chat_request(body)
    assert caught.value.param is None


def test_the_second_name_of_max_tokens_wins() -> None:
    assert a_job(max_tokens=5, max_completion_tokens=6).max_tokens == 6


def test_an_empty_model_name_is_none() -> None:
    assert a_job(model="").model is None


def test_one_stop_string_needs_no_list() -> None:
    assert a_job(stop="x" * 64).stop == ("x" * 64,)


def test_developer_is_system() -> None:
    (message,) = a_job(messages=[turn("be good", "developer")]).messages
    assert message == Message(role="system", content="be good")


def test_texts_of_parts_are_all_kept_in_order() -> None:
    parts = [{"type": "text", "text": text} for text in ("one ", "", "two\n", "three")]
    (message,) = a_job(messages=[turn(parts)]).messages
    assert message.content == "one two\nthree"


def test_logprobs_alone_asks_for_no_others() -> None:
    assert a_job(logprobs=True).sampling.n_logprobs == 0
    assert a_job(logprobs=False).sampling.n_logprobs is None


def test_reasoning_fields_are_told() -> None:
    job = a_job(
        reasoning_effort="high",
        reasoning={"effort": "low", "max_tokens": 5, "budget": "med"},
        thinking={"type": "disabled"},
        max_think_tokens=7,
        thinking_budget="uncapped",
        chat_template_kwargs={"enable_thinking": False, "mood": "good"},
    )
    assert job.reasoning == ReasoningWishes(
        modes=(("thinking", False), ("chat_template_kwargs.enable_thinking", False)),
        efforts=(("reasoning_effort", "high"), ("reasoning.effort", "low")),
        caps=(("max_think_tokens", 7), ("reasoning.max_tokens", 5)),
        budgets=(("thinking_budget", "uncapped"), ("reasoning.budget", "med")),
    )
    assert job.template_arguments == {"mood": "good"}


def test_a_cap_of_nothing_is_told_since_it_overrides_a_setting() -> None:
    caps = a_job(max_think_tokens=0, reasoning={"max_tokens": 0}).reasoning.caps
    assert caps == (("max_think_tokens", 0), ("reasoning.max_tokens", 0))


@pytest.mark.parametrize(
    ("thinking", "mode"),
    [
        (True, True),
        (False, False),
        ("on", True),
        ("off", False),
        ({"type": "enabled"}, True),
        ({"type": "disabled"}, False),
    ],
)
def test_thinking_is_spelled_in_several_ways(thinking: object, mode: bool) -> None:
    assert a_job(thinking=thinking).reasoning.modes == (("thinking", mode),)


def test_tools_are_hidden_by_the_choice_of_none() -> None:
    assert [tool.name for tool in a_job(tools=[F]).tools] == ["f"]
    assert a_job(tools=[F], tool_choice="none").tools == ()


def test_a_tool_reaches_the_template_as_it_was_sent() -> None:
    sent = {**F, "strict": True, "function": {**F["function"], "extra": [1]}}
    (tool,) = a_job(tools=[sent]).tools
    assert tool.document == sent


@pytest.mark.parametrize(("sent", "arguments"), [('{"a": 1}', {"a": 1}), ("", {}), (None, {}), ({"a": 1}, {"a": 1})])
def test_arguments_become_objects(sent: object, arguments: dict[str, Any]) -> None:
    (message,) = a_job(messages=[calling(a_call(sent))]).messages
    assert message.calls == (PastCall(id="c1", name="f", arguments=arguments),)
    assert message.content == ""


@pytest.mark.parametrize("role", ["tool", "function"])
def test_a_result_of_a_tool(role: str) -> None:
    (message,) = a_job(messages=[{**turn("42", role), "tool_call_id": "c1", "name": "f"}]).messages
    assert message == Message(role="tool", content="42", name="f", call_id="c1")


def test_the_form_of_the_answer() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "description": "d", "schema": schema}}
    assert a_job(response_format={"type": "text", "json_schema": None}).answer_format is None
    assert a_job(response_format={"type": "json_object"}).answer_format == AnswerFormat(schema={"type": "object"})
    assert a_job(response_format=wanted).answer_format == AnswerFormat(schema=schema, is_strict=False, path=SCHEMA)
    wanted["json_schema"] = {"name": "n", "schema": schema, "strict": True}
    assert a_job(response_format=wanted).answer_format == AnswerFormat(schema=schema, is_strict=True, path=SCHEMA)


def test_what_must_be_called() -> None:
    other = {"type": "function", "function": {"name": "g", "strict": True}}
    named = {"type": "function", "function": {"name": "g"}}
    free, forced, chosen = (a_job(tools=[F, other], tool_choice=choice) for choice in ("auto", "required", named))
    assert (free.must_call, free.keeps_one_call) == ((), False)
    assert (forced.must_call, forced.keeps_one_call) == (("f", "g"), False)
    assert (chosen.must_call, chosen.keeps_one_call) == (("g",), True)
    assert [tool.name for tool in chosen.tools] == ["f", "g"]
    assert [(tool.is_strict, tool.path) for tool in chosen.tools] == [
        (False, "tools[0].function.parameters"),
        (True, "tools[1].function.parameters"),
    ]
