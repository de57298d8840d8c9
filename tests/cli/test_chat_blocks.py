import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.cli.chat.blocks import Blocks

LINES = st.sampled_from(
    """text

more text
# title
---
***
- item
  below
1. one
2. two
```
> quote
| a | b |
|---|---|
    code
<p>html</p>
\ttab""".splitlines()
)


def blocks_of(pieces: list[str]) -> list[str]:
    blocks = Blocks()
    return [*(block for piece in pieces for block in blocks.feed(piece)), blocks.close()]


def test_a_block_is_finished_when_another_has_begun() -> None:
    blocks = Blocks()
    assert blocks.feed("one\ntwo\n") == []
    assert blocks.feed("\n# title") == []
    assert blocks.feed("\n") == ["one\ntwo\n\n"]
    assert (blocks.rest, blocks.close(), blocks.rest) == ("# title\n", "# title\n", "")


def test_a_line_that_is_not_whole_says_nothing_yet() -> None:
    # "2" is a paragraph, "2. two" goes on with the list.
    assert blocks_of(["1. one\n\n2", ". two\n"]) == ["1. one\n\n2. two\n"]


def test_a_list_with_empty_lines_and_a_fence_are_one_block() -> None:
    assert blocks_of(["- a\n\n- b\n\n  more\n", "```\n\n# no title\n\n```\n", "end\n"]) == [
        "- a\n\n- b\n\n  more\n",
        "```\n\n# no title\n\n```\n",
        "end\n",
    ]


def test_a_row_of_dashes_makes_a_heading_of_the_last_block() -> None:
    assert blocks_of(["one\n\ntwo\n", "---\n", "three\n"]) == ["one\n\n", "two\n---\n", "three\n"]


@settings(deadline=None)
@given(lines=st.lists(LINES, max_size=12), cuts=st.lists(st.integers(0, 80), max_size=6))
def test_blocks_make_up_the_text_and_do_not_depend_on_its_pieces(lines: list[str], cuts: list[int]) -> None:
    text = "\n".join(lines)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[begin:end] for begin, end in itertools.pairwise(edges)]
    blocks = blocks_of(pieces)
    assert "".join(blocks) == text
    assert blocks == blocks_of(list(text))
