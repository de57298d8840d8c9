"""What a hostile template cannot do: take long, or take much memory."""

import itertools
import tracemalloc
from collections.abc import Iterator

import pytest

from hipfire.errors import TemplateError
from hipfire.text.render_budget import RenderBudget, RenderLimits
from hipfire.text.template import ChatTemplate

MIB = 2**20
HELLO = [{"role": "user", "content": "Hello"}]
# For a few of the texts below: a million characters, a thousand times.
MANY = "{% set a = 'a' * 1000000 %}{% set b = 'a' * 1000000 %}{% set many = [a] * 1000 %}"


def render(source: str) -> str:
    return ChatTemplate(source, bos_token="", eos_token="").render(HELLO)


@pytest.fixture
def _little_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 200 * MIB


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**9 }}",
        "{{ 10**9 * 'a' }}",
        "{{ ([0] * 10**9) | length }}",
        "{{ range(10**9) }}",
        "{{ 10 ** (10 ** 8) }}",
        "{% set ns = namespace(x=9) %}{% for i in range(50) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(50) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='a') %}{% for i in range(50) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=['a']) %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x=(1,)) %}{% for i in range(9999) %}{% set ns.x = (ns.x,) %}{% endfor %}{{ {ns.x: 1} }}",
        "{% macro m() %}{% for i in range(99999) %}" + "x" * 10000 + "{% endfor %}{% endmacro %}{{ m() | length }}",
        MANY + "{{ many }}",
        MANY + "{{ many | tojson }}",
        MANY + "{{ many | join }}",
        MANY + "{{ many | string | length }}",
        MANY + "{{ ''.join(many) }}",
        MANY + "{{ many == [b] * 1000 }}",
        MANY + "{{ many is eq([b] * 1000) }}",
        MANY + "{{ b in many }}",
        MANY + "{{ ('%s' * 1000) % a }}",
        MANY + "{{ ('%s' * 1000) | format(a) }}",
        MANY + "{{ ('{0}' * 1000).format(a) }}",
        MANY + "{{ " + " ~ ".join(["a"] * 100) + " }}",
        MANY + "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = ns.l + [a[1:]] %}{% endfor %}",
        "{{ '%999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '%.999999999f' | format(1.5) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, 999999999) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ 'x'.ljust(999999999) }}",
        "{{ 'x'.zfill(999999999) }}",
        "{{ '\\t'.expandtabs(999999999) }}",
        "{{ ('\\n' * 100000) | indent(100000) }}",
        "{{ ('a' * 100000).replace('a', 'b' * 100000) }}",
        "{{ ('a' * 100000) | replace('', 'b' * 100000) }}",
        "{{ ('x' * 9999999).split('x') }}",
        "{{ ('\\x00' * 60000000) | tojson }}",
        "{{ ('<' * 60000000) | e }}",
        "{{ 5 | round(-1000000000) }}",
        "{{ [1] | batch(10**9, 'x') | list }}",
        "{{ [[1]] | tojson(indent=10**9) }}",
        "{{ [[1]] | tojson(separators=('a' * 1000, 'b')) }}",
        MANY + "{{ raise_exception(many) }}",
        MANY + "{{ {}[many] + 1 }}",
        MANY + "{{ [1].index(many) }}",
        MANY + "{{ many.count(b) }}",
        MANY + "{{ many | safe | length }}",
        MANY + "{{ '' | replace(many, '') }}",
        MANY + "{% for x in 'ab' %}{{ loop.changed(many) }}{% endfor %}",
        "{% set n = namespace(t=(1,)) %}{% for i in 'x' * 12 %}{% set n.t = (n.t, n.t) %}{% endfor %}{{ {}[n.t] }}",
        "{{ ('%(' * 50000) % 1 }}",
        "{{ '%((x)999999999d' % {'(x': 1} }}",
        "{{ ('{' + ':' * 1000000).format(1) }}",
        "{{ ('x' * 9999999) | list | length }}",
        "{{ cycler(*('x' * 9999999)) }}",
        "{{ ('x' * 9999999) | trim('y' * 999999) }}",
        "{{ ('x' * 9999999).strip('y' * 999999) }}",
        "{{ dict(a=1).keys() - dict(b=1).keys() }}",
        "{{ ('x' | safe) + ('<' * 30000000) }}",
        "{{ 'x' * 300 | truncate(1) }}",
        "{{ strftime_now('%d' * 100000) }}",
        "{{ lipsum(100000) }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in [1] recursive %}{{ loop([1]) }}{% endfor %}",
        "{% block a %}{{ self.a() }}{% endblock %}",
        "{{ " + "(" * 1000 + ")" * 1000 + " }}",
        "{{ " + " + ".join(["1"] * 1000) + " }}",
        "{% if 1 %}" * 1000 + "{% endif %}" * 1000,
        "x" * MIB,
    ],
)
def test_explosions(source: str) -> None:
    with pytest.raises(TemplateError):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{{ loop.length }}{% endfor %}{% endfor %}",
        "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
        "{% for a in range(99999) recursive %}{% if loop.depth < 4 %}{{ loop(range(99999)) }}{% endif %}{% endfor %}",
        "{{ range(99999) | map('string') | map('trim') | list | length }}" * 9,
        "{% for a in range(99999) if a < 0 %}{% endfor %}" * 9,
        "{% for a in range(99999) %}{% set x = a < 3 and a > 1 %}{% endfor %}" * 9,
    ],
)
def test_time_is_up(source: str) -> None:
    clock = itertools.count(step=0.01).__next__
    template = ChatTemplate(source, bos_token="", eos_token="", clock=clock)
    with pytest.raises(TemplateError, match=r"takes longer than 1\.01 s"):
        template.render(HELLO)


def test_long_conversations_have_more_time() -> None:
    clock = itertools.count().__next__
    budget = RenderBudget(RenderLimits(seconds=1, seconds_per_message=0.5), clock, n_messages=4)
    for _ in range(3):
        # So much text is worth a look at the clock.
        budget.tick(MIB)
    with pytest.raises(TemplateError, match="longer than 3 s"):
        budget.tick(MIB)


def test_a_collection_is_charged_with_all_that_is_nested_in_it_once_for_each_time_it_occurs() -> None:
    budget = RenderBudget(RenderLimits(characters=100, items=20), lambda: 0, n_messages=1)
    inner = ["abc", ("d", {"e": "f"})]
    budget.keep([inner, inner])
    with pytest.raises(TemplateError, match="more than 100 characters"):
        budget.read([inner, inner], growth=9)
    budget = RenderBudget(RenderLimits(characters=100, items=20), lambda: 0, n_messages=1)
    budget.read([inner, inner])
    with pytest.raises(TemplateError, match="more than 20 items"):
        budget.read([inner])


def test_what_is_read_may_be_large() -> None:
    conversation = [{"role": "user", "content": "é" * 4 * MIB}] * 4
    source = "{% for message in messages %}{{ message.role + message.content | trim }}{% endfor %}"
    rendered = ChatTemplate(source, bos_token="", eos_token="").render(conversation)
    assert len(rendered) == 4 * (4 * MIB + 4)
