from collections.abc import Sequence
from typing import Any

import pytest
from scripted_service import TINY, tiny_tokenizer

from hipfire.catalog.store import InstalledModel
from hipfire.config.schema import Settings
from hipfire.errors import TemplateError
from hipfire.service.conversation import encode_conversation
from hipfire.service.model_text import ModelText, read_model_text
from hipfire.service.request import Message, PastCall
from hipfire.text.template import ChatTemplate

ANY_TURNS = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content | trim }};{% endfor %}"
    "{% if add_generation_prompt %}a:{% endif %}"
)
STRICT = (
    "{% set offset = 1 if messages[0].role == 'system' else 0 %}"
    "{% for m in messages[offset:] %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% endfor %}" + ANY_TURNS
)
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + STRICT
FORGETS_SYSTEM = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role[0] }}:{{ m.content }};{% endif %}{% endfor %}a:"
)
REFUSES = "{{ raise_exception('never') }}"
SHOUTS = "{% for m in messages %}{{ m.role[0] }}:{{ m.content | upper }};{% endfor %}a:"


def a_model(source: str) -> ModelText:
    return ModelText(tokenizer=tiny_tokenizer(), template=ChatTemplate(source, bos_token="", eos_token=""))


def conversation(*turns: str) -> list[Message]:
    """`u:hi` is a message of the user."""
    roles = {"s": "system", "u": "user", "a": "assistant"}
    return [Message(role=roles[turn[0]], content=turn[2:]) for turn in turns]


def prompt_of(source: str, turns: Sequence[str], *, system: str | None = None, **arguments: Any) -> str:
    model = a_model(source)
    ids = encode_conversation(model, conversation(*turns), system=system, arguments=arguments)
    return b"".join(map(model.tokenizer.token_bytes, ids)).decode()


@pytest.mark.parametrize(
    ("source", "turns", "prompt"),
    [
        pytest.param(ANY_TURNS, ["u:1", "s:2", "u:3", "u:4"], "u:1;s:2;u:3;u:4;a:", id="as it is"),
        pytest.param(STRICT, ["s:1", "u:2", "a:3", "u:4"], "s:1;u:2;a:3;u:4;a:", id="as it is, strict"),
        pytest.param(STRICT, ["s:1", "s:2", "u:3", "u:4"], "s:1\n\n2;u:3\n\n4;a:", id="two in a row"),
        pytest.param(STRICT, ["u:1", "a:2", "s:3", "u:4"], "u:1;a:2;u:3\n\n4;a:", id="system later on"),
        pytest.param(NO_SYSTEM, ["s:1", "u:2"], "u:1\n\n2;a:", id="no system role"),
        pytest.param(NO_SYSTEM, ["s:1"], "u:1;a:", id="nothing but system"),
        pytest.param(FORGETS_SYSTEM, ["s:1", "u:2"], "u:1\n\n2;a:", id="system left out without a word"),
        pytest.param(SHOUTS, ["s:one", "u:two"], "s:ONE;u:TWO;a:", id="nothing can be told"),
    ],
)
def test_a_template_gets_what_it_can_take(source: str, turns: list[str], prompt: str) -> None:
    assert prompt_of(source, turns) == prompt


def test_a_template_that_takes_nothing_says_why() -> None:
    with pytest.raises(TemplateError, match="never"):
        prompt_of(REFUSES, ["u:1"])


@pytest.mark.parametrize(
    ("turns", "prompt"),
    [
        (["u:1", "a:Yes, "], "u:1;a:Yes, "),
        (["u:1", "a:2", "a:3"], "u:1;a:2;a:3"),
        (["u:1", "a:"], "u:1;a:"),
    ],
)
def test_an_answer_that_was_begun_is_continued(turns: list[str], prompt: str) -> None:
    assert prompt_of(ANY_TURNS, turns) == prompt


def test_the_default_system_prompt_is_for_who_has_none() -> None:
    assert prompt_of(ANY_TURNS, ["u:1"], system="0") == "s:0;u:1;a:"
    assert prompt_of(ANY_TURNS, ["u:1", "s:2"], system="0") == "u:1;s:2;a:"


def test_arguments_reach_the_template() -> None:
    assert prompt_of("{{ mood }};{{ messages[0].content }}", ["u:1"], mood="good") == "good;1"


def test_a_name_and_reasoning_reach_the_template() -> None:
    model = a_model("{{ messages[0].name }};{{ messages[0].reasoning_content }};{{ messages[0].content }}")
    message = Message(role="user", content="1", name="me", reasoning_content="hm")
    ids = encode_conversation(model, [message], system=None, arguments={})
    assert b"".join(map(model.tokenizer.token_bytes, ids)) == b"me;hm;1"


def test_a_begun_answer_cannot_hold_control_tokens() -> None:
    model = read_model_text(InstalledModel(tag="tiny", path=TINY), Settings())
    control = next(iter(model.tokenizer.control_texts))
    plain = encode_conversation(model, conversation("u:1", "a:"), system=None, arguments={})
    begun = encode_conversation(model, conversation("u:1", f"a:{control}"), system=None, arguments={})
    assert begun[: len(plain)] == plain
    assert not set(begun[len(plain) :]) & set(model.tokenizer.control_texts.values())


CALLS = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}[{{ c.id }} {{ c.function.name }} {{ c.function.arguments.x }}]{% endfor %}"
    "{% if m.role == 'tool' %}({{ m.tool_call_id }} {{ m.name }}){% endif %};{% endfor %}a:"
)
ONE_CALL = (
    "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}"
    "{% endfor %}" + CALLS
)
SHORT_IDS = (
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id | length != 9 %}{{ raise_exception('9') }}"
    "{% endif %}{% endfor %}{% endfor %}" + CALLS
)
NO_TOOLS = (
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}"
    "{{ m.role[0] }}:{{ m.content }};{% endfor %}a:"
)
QUOTES = (
    "{% for m in messages %}{{ m.role[0] }}:{{ m.content | tojson if m.role == 'tool' else m.content }};{% endfor %}a:"
)


def two_calls() -> list[Message]:
    return [
        Message(role="user", content="1"),
        Message(
            role="assistant",
            content="2",
            calls=tuple(PastCall(id=f"id{n}", name="f", arguments={"x": n}) for n in (7, 8)),
        ),
        Message(role="tool", content='say "7"', call_id="id7"),
        Message(role="tool", content="8", call_id="id8"),
        Message(role="tool", content="9", call_id="unknown"),
    ]


@pytest.mark.parametrize(
    ("source", "prompt"),
    [
        pytest.param(
            CALLS,
            'u:1;a:2[id7 f 7][id8 f 8];t:say "7"(id7 f);t:8(id8 f);t:9(unknown );a:',
            id="as it is",
        ),
        pytest.param(
            ONE_CALL,
            'u:1;a:2[id7 f 7];t:say "7"(id7 f);a:[id8 f 8];t:8(id8 f);t:9(unknown );a:',
            id="one call a turn",
        ),
        pytest.param(
            SHORT_IDS,
            'u:1;a:2[000000001 f 7][000000002 f 8];t:say "7"(000000001 f);t:8(000000002 f);t:9(000000003 );a:',
            id="ids of nine digits",
        ),
        pytest.param(
            NO_TOOLS,
            'u:1;a:2\n<tool_call>\n{"name": "f", "arguments": {"x": 7}}\n</tool_call>\n'
            '<tool_call>\n{"name": "f", "arguments": {"x": 8}}\n</tool_call>;'
            'u:<tool_response>\nsay "7"\n</tool_response>;u:<tool_response>\n8\n</tool_response>;'
            "u:<tool_response>\n9\n</tool_response>;a:",
            id="as text",
        ),
        pytest.param(QUOTES, 'u:1;a:2;t:"say \\"7\\"";t:"8";t:"9";a:', id="results as JSON"),
    ],
)
def test_calls_and_results_in_a_form_that_the_template_takes(source: str, prompt: str) -> None:
    model = a_model(source)
    ids = encode_conversation(model, two_calls(), system=None, arguments={})
    assert b"".join(map(model.tokenizer.token_bytes, ids)).decode() == prompt
