import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.text.stop import StopMatcher


def feed(stops: list[str], chunks: list[str]) -> tuple[list[str], bool]:
    matcher = StopMatcher(stops)
    out = [matcher.feed(chunk) for chunk in chunks]
    return [*out, matcher.close()], matcher.matched


@pytest.mark.parametrize(
    ("stops", "chunks", "out", "matched"),
    [
        ([], ["a", "b"], ["a", "b", ""], False),
        (["end"], ["the e", "nd", " of"], ["the ", "", "", ""], True),
        (["end"], ["the e", "ne", "n"], ["the ", "en", "", "en"], False),
        # Held back is what may be a beginning, and no more.
        (["aab"], ["aaa", "ab"], ["a", "a", ""], True),
        (["\n\n"], ["a\n", "b\n", "\nc"], ["a", "\nb", "", ""], True),
        # Complete first, though the other starts first.
        (["abcd", "bc"], ["ab", "cd"], ["", "a", ""], True),
        # Complete at the same place: the longest.
        (["abc", "bc"], ["xabc"], ["x", ""], True),
        (["b", "bc"], ["abc"], ["a", ""], True),
        (["x" * 64], ["x" * 63, "x"], ["", "", ""], True),
    ],
)
def test_matching(stops: list[str], chunks: list[str], out: list[str], matched: bool) -> None:
    assert feed(stops, chunks) == (out, matched)


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopMatcher(["a", ""])


def first_match(text: str, stops: list[str]) -> int:
    """Where the match starts that is complete first; the end of the text if there is none."""
    for end in range(1, len(text) + 1):
        starts = [end - len(stop) for stop in stops if text[:end].endswith(stop)]
        if starts:
            return min(starts)
    return len(text)


short = st.text(alphabet="ab\n", max_size=5)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(short.filter(bool), max_size=4), st.lists(short, max_size=10))
def test_any_chunking_gives_the_text_up_to_the_first_match(stops: list[str], chunks: list[str]) -> None:
    text = "".join(chunks)
    out, matched = feed(stops, chunks)
    assert "".join(out) == text[: first_match(text, stops)]
    assert matched == (first_match(text, stops) < len(text))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(short.filter(bool), max_size=4), short, short)
def test_no_more_is_held_back_than_may_be_a_match(stops: list[str], text: str, more: str) -> None:
    matcher = StopMatcher(stops)
    shown = matcher.feed(text)
    if not matcher.matched:
        held = text[len(shown) :]
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)
