"""What holds of every family, whatever a model says."""

import pytest
from call_writers import NOTE, UNWRITABLE, WRITERS
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from markup_reading import Reading, cut, read

from hipfire.text.dialects.families import FAMILIES, PLAIN, family_of
from hipfire.text.dialects.family import Family
from hipfire.text.markup import Reasoning, Text

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
    "<|START_THINKING|>", "<|END_THINKING|>", "<|START_ACTION|>", "<|END_ACTION|>", "<|START_TEXT|>",
    '[{"tool_name": "note", "parameters": {}}]', "<minimax:tool_call>", '<invoke name="note">', "</invoke>",
    '<parameter name="text">', "</minimax:tool_call>",
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
    output = "</think>\n\nFirst.\n\n" + "\nThen.\n".join(map(WRITERS["qwen3.5"], texts))
    reading = read(family, cut(output, size), declared=NOTE, begins_inside=True)
    assert reading.calls == tuple(("note", {"text": text}) for text in texts)
    assert reading.text == "First." + "\nThen." * (len(texts) - 1)


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
