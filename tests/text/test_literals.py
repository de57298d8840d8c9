import pytest

from hipfire.text.literals import LiteralMatcher


@pytest.mark.parametrize(
    ("literals", "text", "parts"),
    [
        ({}, "abc", ["abc"]),
        ({}, "", []),
        ({"b": 1}, "abcb", ["a", 1, "c", 1]),
        # The longest of those that start at one place, and of overlapping ones the first.
        ({"a": 1, "ab": 2, "abc": 3}, "abcabxa", [3, 2, "x", 1]),
        ({"ab": 1, "bcd": 2}, "abcd", [1, "cd"]),
        ({"<|x|>": 1, "<|": 2}, "<<|x|><|x|", ["<", 1, 2, "x|"]),
        ({"]": 1, "^": 2, "-": 3, "\\": 4}, "a]^-\\", ["a", 1, 2, 3, 4]),
        ({"\n\n": 1, "\n": 2}, "\n\n\n", [1, 2]),
    ],
)
def test_split(literals: dict[str, int], text: str, parts: list[str | int]) -> None:
    assert list(LiteralMatcher(literals).split(text)) == parts
