from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.text.detokenizer import Detokenizer


class Tokens:
    """A tokenizer whose tokens are given as their bytes."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def detokenize(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(Tokens(pieces))
    return [*(detokenizer.feed(token) for token in range(len(pieces))), detokenizer.close()]


def test_a_character_comes_when_it_is_complete() -> None:
    assert detokenize([b"h\xc3", b"\xa9", b"", b"\xf0\x9f", b"\xa6", b"\x99!"]) == ["h", "é", "", "", "", "🦙!", ""]


def test_invalid_bytes_are_replaced_at_once_and_incomplete_ones_at_the_end() -> None:
    assert detokenize([b"a\xff", b"\xf0\x9f", b"b", b"\xe4\xbd"]) == ["a\ufffd", "", "\ufffdb", "", "\ufffd"]


def test_leading_spaces_and_byte_order_marks_are_text() -> None:
    assert detokenize([b" a", b"\xef\xbb\xbf", b" ,"]) == [" a", "\ufeff", " ,", ""]


# Text cut anywhere, with stray bytes between.
pieces = st.one_of(st.binary(max_size=4), st.sampled_from([bytes([byte]) for byte in "é日🦙👩‍💻".encode()]))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(pieces))
def test_what_comes_is_the_reading_of_all_bytes(given_pieces: list[bytes]) -> None:
    assert "".join(detokenize(given_pieces)) == b"".join(given_pieces).decode("utf-8", "replace")


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.text(), st.integers(1, 3))
def test_valid_text_never_shows_a_replacement(text: str, size: int) -> None:
    data = text.encode("utf-8", "replace")
    shown = detokenize([data[start : start + size] for start in range(0, len(data), size)])
    assert "".join(shown) == data.decode()
