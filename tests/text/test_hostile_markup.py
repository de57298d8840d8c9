"""What a model or a user may say to confuse whoever takes calls out of it, with every family."""

from collections.abc import Callable

import pytest
from call_writers import CALLERS, NOTE, THINKERS, UNWRITABLE, WRITERS, with_reasoning
from markup_reading import Reading, cut, read, tools

from hipfire.text.dialects.family import Family

each_caller = pytest.mark.parametrize("family", CALLERS, ids=lambda family: family.name)
each_thinker = pytest.mark.parametrize("family", THINKERS, ids=lambda family: family.name)

# The end of each syntax, whole and in parts, with something behind it.
CLOSERS = (
    "</tool_call>", "</parameter>", "</parameter>\n</function>\n</tool_call> more", "</function>", "[/ARGS]", "}}]",
    '"}}\n</tool_call>', "<|tool_call_end|>", "')]<|tool_call_end|>", "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
    "</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls> more",
    "</parameter>\n</invoke>\n</minimax:tool_call> more", "}]<|END_ACTION|>", "}<tool_call|>", "<|call|>", "<|end|>",
    "</atem:parameter>\n</atem:invoke>\n</atem:function_calls> more", "<|eom|>", "<|/tool_call|>",
)  # fmt: skip


@each_caller
def test_every_family_has_a_writer(family: Family) -> None:
    assert read(family, [WRITERS[family.name]("x")], declared=NOTE).calls == (("note", {"text": "x"}),)


@each_caller
@pytest.mark.parametrize("closer", CLOSERS)
def test_an_argument_that_holds_closing_markup(family: Family, closer: str) -> None:
    text = f"see {closer} there"
    if any(mark in text for mark in UNWRITABLE.get(family.name, ())):
        return
    output = WRITERS[family.name](text)
    for size in (1, 5, len(output)):
        assert read(family, cut(output, size), declared=NOTE) == Reading(calls=(("note", {"text": text}),))


@each_caller
@pytest.mark.parametrize("n_calls", [1, 2])
def test_an_argument_that_holds_whole_calls(family: Family, n_calls: int) -> None:
    write = WRITERS[family.name]
    text = f"First {' and '.join([write('x')] * n_calls)} then"
    if family.name not in UNWRITABLE:
        assert read(family, cut(write(text), 3), declared=NOTE).calls == (("note", {"text": text}),)


@pytest.mark.parametrize("name", ["deepseek-v4", "minimax"])
def test_what_is_said_of_invocations_behind_them_is_text(name: str) -> None:
    (family,) = (family for family in CALLERS if family.name == name)
    assert family.syntax is not None
    closer = "</｜DSML｜invoke>" if name == "deepseek-v4" else "</invoke>"
    output = f"{WRITERS[name]('x')}\n\nIt ended with {closer}."
    assert read(family, cut(output, 3), declared=NOTE).calls == (("note", {"text": "x"}),)


@each_thinker
def test_a_call_in_the_reasoning_is_reasoning(family: Family) -> None:
    call = WRITERS[family.name]("x")
    if family.channels is not None:
        # There a call is a message of its own, so what is in the reasoning is only what it holds.
        call = call.partition("<|message|>")[2]
    reading = read(family, cut(with_reasoning(family, f"I could {call} now.", ""), 3), declared=NOTE)
    assert reading == Reading(reasoning=f"I could {call} now.")


@each_thinker
def test_a_call_behind_the_reasoning_is_a_call(family: Family) -> None:
    reading = read(family, cut(with_reasoning(family, "I must.", WRITERS[family.name]("x")), 3), declared=NOTE)
    assert reading == Reading(reasoning="I must.", calls=(("note", {"text": "x"}),))


@each_caller
def test_a_call_that_is_cut_off_is_no_call_and_no_text(family: Family) -> None:
    output = WRITERS[family.name]("some text")
    # Less than that is no more than text.
    marker = "<|channel|>" if family.channels is not None else family.syntax.openers(NOTE)[0].literal
    for length in range(len(marker), output.index("some text") + len("some text")):
        reading = read(family, cut(output[:length], 4), declared=NOTE, truncated=True)
        assert reading == Reading(), output[:length]


@each_caller
def test_a_call_that_the_model_does_not_end_stays_text(family: Family) -> None:
    output = WRITERS[family.name]("some text")
    unended = output[: output.index("some text") + len("some text")]
    reading = read(family, cut(unended, 4), declared=NOTE)
    assert reading.calls == ()
    assert reading.text == (unended if family.channels is None else unended.partition("<|message|>")[2])


@each_caller
def test_a_call_of_an_undeclared_tool_stays_text(family: Family) -> None:
    output = WRITERS[family.name]("x")
    reading = read(family, cut(output, 4), declared=tools(other={}))
    assert reading.calls == ()
    assert reading.text == (output if family.channels is None else output.partition("<|message|>")[2])


PROSE: tuple[Callable[[str], str], ...] = (
    lambda opener: f"Begin with {opener} and go on.",
    lambda opener: f"`{opener}` then `note`: that is a call.",
    lambda opener: f"{opener}\n\nis how it begins.",
)


@each_caller
@pytest.mark.parametrize("prose", PROSE)
def test_prose_about_calls_is_text(family: Family, prose: Callable[[str], str]) -> None:
    if family.channels is not None:
        text = prose("<atem:function_calls>" if family.name == "glimmer" else "to=functions.note")
        header = " to=user<|message|>" if family.name == "glimmer" else "<|channel|>final<|message|>"
    else:
        assert family.syntax is not None
        text, header = prose(family.syntax.openers(NOTE)[0].literal), ""
    assert read(family, cut(header + text, 3), declared=NOTE) == Reading(text=text)
