"""Hugging Face's semantics, and that nothing but TemplateError comes out."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from reference_data import reference

from hipfire.errors import TemplateError
from hipfire.formats.gguf import open_gguf
from hipfire.text.template import ChatTemplate
from hipfire.text.template_literals import Rewrite

HELLO: list[dict[str, Any]] = [{"role": "user", "content": "Hello"}]


def render(source: str, messages: list[dict[str, Any]] = HELLO, **kwargs: Any) -> str:
    template = ChatTemplate(
        source, bos_token="<s>", eos_token="</s>", now=lambda: datetime(2026, 1, 15, 12, 0, tzinfo=UTC)
    )
    return template.render(messages, **kwargs)


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        # trim_blocks and lstrip_blocks.
        ("a\n  {% if true %}\n  b\n  {% endif %}\nc", "a\n  b\nc"),
        ("{{ bos_token }}{{ messages[0].content }}{{ messages[0]['role'] }}{{ eos_token }}", "<s>Hellouser</s>"),
        ("{% if add_generation_prompt %}go{% endif %}", "go"),
        ("{{ tools is defined }} {{ absent }}{{ absent is none }}", "False False"),
        ("{{ none }} {{ true }} {{ 1.0 }} {{ [1, 'a', none] }}", "None True 1.0 [1, 'a', None]"),
        ("{{ '\\n' ~ 1 ~ none }}", "\n1None"),
        # tojson is plain JSON, not HTML's.
        ("{{ {'a': '<é\\'>', 'b': [1, true, none]} | tojson }}", '{"a": "<é\'>", "b": [1, true, null]}'),
        (
            "{{ {'b': 1, 'a': 'é'} | tojson(indent=1, sort_keys=true, ensure_ascii=true) }}",
            '{\n "a": "\\u00e9",\n "b": 1\n}',
        ),
        ("{{ messages | map(attribute='role') | tojson }}", '["user"]'),
        ("{{ [1, 2] | tojson(separators=(',', ':')) }}", "[1,2]"),
        ("{{ '<&>' }}{{ '<' | safe }}", "<&><"),
        # The loop controls, the loop's own variables, and a namespace.
        (
            "{% for x in 'abd' %}{% if x == 'b' %}{% continue %}{% elif x == 'd' %}{% break %}{% endif %}x{% endfor %}",
            "x",
        ),
        (
            "{% for x in 'abc' %}{{ loop.index0 }}/{{ loop.length }}{{ loop.last }}{{ loop.nextitem }} {% endfor %}",
            "0/3Falseb 1/3Falsec 2/3True ",
        ),
        ("{% for x in [] %}x{% else %}none{% endfor %}{% for x in absent %}x{% endfor %}", "none"),
        ("{% for a, b in {'x': 1}.items() if b %}{{ a }}{{ b }}{% endfor %}", "x1"),
        ("{% for x in [[1, [2]]] recursive %}{{ x if x is number else loop(x) }}{% endfor %}", "12"),
        ("{% set ns = namespace(n=0) %}{% for x in [1, 2] %}{% set ns.n = ns.n + x %}{% endfor %}{{ ns.n }}", "3"),
        ("{% macro m(x, y='b') %}{{ x }}{{ y }}{{ caller() }}{% endmacro %}{% call m('a') %}c{% endcall %}", "abc"),
        ("{% set x %} a {% endset %}{{ x | trim }}|{% filter upper %}b{% endfilter %}", "a|B"),
        ("{% generation %}{% set x = 1 %}said{{ x }}{% endgeneration %}{{ x }}", "said1"),
        ("{{ strftime_now('%d %b %Y %H:%M') }}", "15 Jan 2026 12:00"),
        # Lists, slices, comparisons, filters and methods.
        ("{{ (messages + [1])[::-1][0] }}{{ 'abc'[1:] }}{{ [1, 2] == [1, 2] }}{{ 1 < 2 < 3 }}", "1bcTrueTrue"),
        (
            "{{ 'role' in messages[0] }}{{ 'el' in 'Hello' }}{{ 3 not in [1, 2] }}{{ 'a' is in ['a'] }}",
            "TrueTrueTrueTrue",
        ),
        ("{{ ['b', 'a'] | sort | join(', ') }}{{ ', '.join(['x', 'y']) }}", "a, bx, y"),
        (
            "{{ messages | map(attribute='role') | list }}{{ messages | selectattr('role', 'equalto', 'x') | list }}",
            "['user'][]",
        ),
        (
            "{{ {'b': 1, 'a': 2} | dictsort }}{{ {'a': 1} | items | list }}{{ {'a': 1} | length }}",
            "[('a', 2), ('b', 1)][('a', 1)]1",
        ),
        (
            "{{ 'a-b' | replace('-', '+') }}{{ 'a-b'.replace('-', '') }}{{ 'a-b'.split('-') }}{{ 'a b'.split() }}",
            "a+bab['a', 'b']['a', 'b']",
        ),
        ("{{ '%s=%05.1f' % ('x', 2) }}{{ '%d' | format(3) }}{{ '{}-{x:>2}'.format(1, x=2) }}", "x=002.03" + "1- 2"),
        ("{{ 'a\\nb' | indent(2) }}{{ '<' | e }}{{ 2 ** 10 }}{{ 'ab' * 2 }}{{ [1] * 2 }}", "a\n  b&lt;1024abab[1, 1]"),
    ],
)
def test_semantics(source: str, rendered: str) -> None:
    assert render(source) == rendered


def test_tools_and_variables() -> None:
    source = "{% if tools is defined %}{{ tools[0].name }}{% endif %}{{ enable_thinking | default('unset') }}"
    assert render(source, tools=[{"name": "look"}], enable_thinking=False) == "lookFalse"
    assert render(source) == "unset"
    assert render("{{ add_generation_prompt }}", add_generation_prompt=False) == "False"


def test_a_template_refuses_in_its_own_words() -> None:
    with pytest.raises(TemplateError, match=r"^roles must alternate$"):
        render("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' + messages[0].content }}",
        "{{ messages[0].content | trim }}{{ messages[0].content + 'a' }}",
        "{% for part in messages[0].content %}{{ part.text }}{% endfor %}",
        "{{ messages[0].content['text'].x }}",
        "{{ messages[0]['absent'].x }}",
        "{{ messages[9].role }}",
        "{{ 1 / 0 }}",
        "{{ 'x' | nothing }}",
        "{{ absent() }}",
        "{{ 'x' | int(base=99) + none }}",
        "{% include 'other' %}",
        "{{ undefined_thing | tojson }}",
    ],
)
@pytest.mark.parametrize("content", [None, [], {}, 5, [{"type": "text", "text": "Hi"}], [None]])
def test_any_failure_is_a_template_error(source: str, content: object) -> None:
    with contextlib.suppress(TemplateError):
        render(source, [{"role": "user", "content": content}])


@pytest.mark.parametrize(
    "source",
    [
        "{% if %}",
        "{{ ",
        "{% for x in y %}",
        "{% unknown %}",
        "{{ 'a' | 1 }}",
        "{% autoescape true %}{% endautoescape %}",
    ],
)
def test_what_is_no_template_is_refused_when_it_is_read(source: str) -> None:
    with pytest.raises(TemplateError, match="not valid"):
        ChatTemplate(source, bos_token="", eos_token="")


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(x=1) }}",
        "{{ messages[0].pop('role') }}",
        "{{ raise_exception.__globals__ }}",
        "{{ namespace.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(1) }}{{ '{x.__class__}'.format_map({'x': 1}) }}",
        "{{ messages | map(attribute='__class__') | join }}",
    ],
)
def test_nothing_outside_can_be_reached_or_changed(source: str) -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "Hello"}]
    rendered = ""
    with contextlib.suppress(TemplateError):
        rendered = render(source, messages)
    assert rendered == ""
    assert messages == HELLO


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        (
            "<|{{ messages[0].role }}|>{{ '<|' + messages[0]['role'] + '|>' ~ messages[0].role | trim }}",
            "<|~user~|><|~user~|>~user~",
        ),
        ("{% set role = messages[0].role %}{{ role == 'user' }}{{ role }}{{ messages[0].content }}", "True~user~Hello"),
        ("{{ messages[0].role if messages[0].role == 'user' }}{{ {'user': 'x'}[messages[0].role] }}", "userx"),
    ],
)
def test_seams_around_roles(source: str, rendered: str) -> None:
    template = ChatTemplate(source, bos_token="", eos_token="").rewritten(Rewrite(text=str, role_seam="~"))
    assert template.render(HELLO) == rendered


def test_rewritten_templates_differ_only_in_what_they_write() -> None:
    source = (
        "{{ bos_token }}<a>{{ '<a>' ~ ('<a>' in messages[0].content) }}{{ messages[0].content.split('<a>')[1] }}"
        "{{ messages[0].content | replace('<a>', '<b>') }}{{ messages[0].content.replace('<a>', '<b>') }}"
        "{% if messages[0].content.startswith('<a>') and messages[0]['<a>'] is defined %}!{% endif %}"
    )
    template = ChatTemplate(source, bos_token="<a>", eos_token="").rewritten(
        Rewrite(text=lambda text: text.replace("<", "{"))
    )
    rendered = template.render([{"role": "user", "content": "<a>b", "<a>": 1}])
    assert rendered == "{a>{a>{a>Trueb" + "{b>b" * 2 + "!"


@pytest.fixture(scope="session")
def smollm2_source(smollm2_path: Path) -> str:
    with open_gguf(smollm2_path) as checkpoint:
        return str(checkpoint.metadata["tokenizer.chat_template"])


@pytest.mark.parametrize("case", reference("renders", "smollm2"), ids=lambda case: case["case"])
def test_renders_of_smollm2(case: dict[str, Any], smollm2_source: str) -> None:
    variables = case["kwargs"] | {"tools": case["tools"]}
    tokens = {name: variables.pop(name) for name in ("bos_token", "eos_token")}
    template = ChatTemplate(smollm2_source, **tokens)
    if "error" in case:
        with pytest.raises(TemplateError, match="can only concatenate str"):
            template.render(case["messages"], **variables)
    else:
        assert template.render(case["messages"], **variables) == case["rendered"]
