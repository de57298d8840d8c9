"""What holds of every family, whatever a model says."""

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markup_reading import Reading, cut, read, tools

from hipfire.text.dialects.families import FAMILIES, PLAIN, family_of
from hipfire.text.dialects.family import Family
from hipfire.text.markup import Reasoning, Text

NOTE = tools(note={"text": {"type": "string"}, "n": {"type": "integer"}})
ALL = (*FAMILIES, PLAIN)
# Pieces of every syntax, and what stands between them.
SOUP = (
    "<think>", "</think>", "<tool_call>", "</tool_call>", "<function=note>", "</function>", "<parameter=text>",
    "</parameter>", '{"name": "note", "arguments": {"text": "x"}}', "<|tool_call_start|>", "<|tool_call_end|>",
    "[note(text='a')]", "[TOOL_CALLS]", "note[ARGS]{}", "[THINK]", "[/THINK]", "<|channel|>analysis", "<|message|>",
    "<|channel|>commentary to=functions.note", " to=note", "to=self", "<|eom|>",
    "<|end|>", "<|start|>assistant", "<|tool_call>", "call:note{n:1}",
    "<tool_call|>", "<|channel>thought", "<channel|>", "<|tool_call|>", "<response>", "</response>", "<|python_tag|>",
    "<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "note<｜tool▁sep｜>{}", "<｜tool▁call▁end｜>",
    "<｜DSML｜tool_calls>", '<｜DSML｜invoke name="note">', "</｜DSML｜invoke>", "</｜DSML｜tool_calls>",
    "\n", "\n\n", " ", "text", "{", "<", "é",
)  # fmt: skip

outputs = st.lists(st.sampled_from(SOUP), max_size=12).map("".join)
families = st.sampled_from(ALL)


@given(
    family=families,
    output=outputs,
    sizes=st.lists(st.integers(1, 9), min_size=1),
    inside=st.booleans(),
    cut_off=st.booleans(),
)
@settings(max_examples=400, deadline=None)
def test_however_it_is_cut_the_events_are_the_same(
    family: Family, output: str, sizes: list[int], inside: bool, cut_off: bool
) -> None:
    pieces, place = [], 0
    while place < len(output):
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(output[place : place + size])
        place += size
    whole = read(family, [output], declared=NOTE, begins_inside=inside, truncated=cut_off)
    assert read(family, pieces, declared=NOTE, begins_inside=inside, truncated=cut_off) == whole


@given(family=families, output=outputs, size=st.integers(1, 9), inside=st.booleans())
@settings(max_examples=200, deadline=None)
def test_every_text_is_where_it_says(family: Family, output: str, size: int, inside: bool) -> None:
    assume(family.channels is None)  # which puts blank lines between messages
    markup = family.markup(tools=NOTE, begins_inside=inside)
    events = [event for piece in cut(output, size) for event in markup.feed(piece)]
    place = 0
    for event in [*events, *markup.close(truncated=False)]:
        if isinstance(event, Text | Reasoning):
            assert event.start >= place
            assert output[event.start :].startswith(event.text)
            place = event.start + len(event.text)


@given(output=outputs, size=st.integers(1, 9))
@settings(max_examples=100, deadline=None)
def test_without_tags_and_tools_all_is_text(output: str, size: int) -> None:
    for family in ALL:
        if family.tags is None and family.channels is None:
            assert read(family, cut(output, size), declared={}) == Reading(text=output)


def qwen(text: str) -> str:
    return f"<tool_call>\n<function=note>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"


def as_json(text: str, key: str = "arguments") -> str:
    return json.dumps({"name": "note", key: {"text": text}}, ensure_ascii=False)


WRITERS: dict[str, Any] = {
    "qwen3.5": qwen,
    "hermes": lambda text: f"<tool_call>\n{as_json(text)}\n</tool_call>",
    "llama3": lambda text: as_json(text, "parameters"),
    "mistral": lambda text: f"[TOOL_CALLS]note[ARGS]{json.dumps({'text': text})}",
    "lfm2": lambda text: f"<|tool_call_start|>[note(text={json.dumps(text, ensure_ascii=False)})]<|tool_call_end|>",
    "deepseek-r1": lambda text: (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n"
        f"```json\n{json.dumps({'text': text})}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    ),
    "deepseek-v4": lambda text: (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="text" string="true">'
        f"{text}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    ),
    "gemma4": lambda text: f'<|tool_call>call:note{{text:<|"|>{text}<|"|>}}<tool_call|>',
    "gpt-oss": lambda text: f"<|channel|>commentary to=functions.note<|message|>{json.dumps({'text': text})}",
    "glimmer": lambda text: (
        ' to=note<|message|><atem:function_calls>\n<atem:invoke name="note">\n'
        f'<atem:parameter name="text">{text}</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
    ),
    "granite3.3": lambda text: f"<|tool_call|>[{as_json(text)}]",
}
# What a syntax that escapes nothing cannot hold: its own end, with the beginning of what would come next behind it.
UNWRITABLE = {
    "qwen3.5": ("<tool_call>", "<parameter=n>"),
    "deepseek-v4": ("</｜DSML｜parameter>",),
    "gemma4": ('<|"|>',),
}
texts = st.text(max_size=30) | outputs


@pytest.mark.parametrize("name", WRITERS)
@given(text=texts, size=st.integers(1, 50))
@settings(max_examples=100, deadline=None)
def test_text_in_an_argument_survives(name: str, text: str, size: int) -> None:
    assume(not any(mark in text for mark in UNWRITABLE.get(name, ())))
    family = family_of(card=name, architecture="", template="")
    reading = read(family, cut(WRITERS[name](text), size), declared=NOTE)
    assert reading.calls == (("note", {"text": text}),)


@given(texts=st.lists(st.text(max_size=20), min_size=2, max_size=4), size=st.integers(1, 50))
@settings(max_examples=50, deadline=None)
def test_several_calls(texts: list[str], size: int) -> None:
    family = family_of(card="qwen3.5", architecture="", template="")
    output = "</think>\n\nFirst.\n\n" + "\nThen.\n".join(map(qwen, texts))
    reading = read(family, cut(output, size), declared=NOTE, begins_inside=True)
    assert reading.calls == tuple(("note", {"text": text}) for text in texts)
    assert reading.text == "First." + "\nThen." * (len(texts) - 1)


@pytest.mark.parametrize("family", [family for family in FAMILIES if family.has_calls], ids=lambda family: family.name)
def test_an_undeclared_tool_is_no_call(family: Family) -> None:
    name = {
        "qwen3-coder": "qwen3.5",
        "qwen3.8": "qwen3.5",
        "mistral-reasoning": "mistral",
        "lfm2.5-thinking": "lfm2",
    }.get(family.name, family.name)
    write = WRITERS.get(name, WRITERS["hermes"])
    assert read(family, [write("x")], declared=tools(other={})).calls == ()


@pytest.mark.parametrize(
    ("family", "prose"),
    [
        ("qwen3.5", "Write `<tool_call>` first, then <function=note>."),
        ("hermes", "Write <tool_call> and then JSON."),
        ("llama3", 'The object {"name": "note"} is an example.'),
        ("llama3", '{"answer": {"name": "note"}}'),
        ("hermes", "a < b <tool"),
    ],
)
def test_prose_about_calls_is_streamed(family: str, prose: str) -> None:
    markup = family_of(card=family, architecture="", template="").markup(tools=NOTE, begins_inside=False)
    opened = [event for piece in cut(prose, 3) for event in markup.feed(piece)]
    shown = "".join(event.text for event in opened if isinstance(event, Text))
    rest = "".join(event.text for event in markup.close(truncated=False) if isinstance(event, Text))
    assert shown + rest == prose
    assert len(rest) < 8
