from collections.abc import Sequence

import pytest

from hipfire.service.events import ChosenToken, TextDelta, TokenLogprob
from hipfire.service.pipeline import AnswerPipeline
from hipfire.wire.messages import Token


class Pieces:
    """A tokenizer of which only the pieces of text matter."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def run(pieces: Sequence[bytes], *, stop: Sequence[str] = (), logprobs: bool = False) -> list[TextDelta | None]:
    """The deltas for each piece as a token of its own, then for the end."""
    pipeline = AnswerPipeline(Pieces(*pieces), stop=stop)
    deltas = []
    for token in range(len(pieces)):
        logprob = -float(token) if logprobs else None
        deltas.append(only(pipeline.feed(Token(id="a", token=token, logprob=logprob))))
        if pipeline.stopped:
            break
    return [*deltas, joined(pipeline.close())]


def only(deltas: Sequence[object]) -> TextDelta | None:
    assert len(deltas) <= 1
    return joined(deltas)


def joined(deltas: Sequence[object]) -> TextDelta | None:
    """What several deltas say together."""
    parts = [delta for delta in deltas if isinstance(delta, TextDelta)]
    assert len(parts) == len(deltas)
    text, logprobs = "".join(part.text for part in parts), sum((part.logprobs for part in parts), ())
    return TextDelta(text, logprobs) if parts else None


def texts(deltas: Sequence[TextDelta | None]) -> list[str | None]:
    return [delta.text if delta is not None else None for delta in deltas]


def reported(deltas: Sequence[TextDelta | None]) -> list[list[bytes]]:
    return [[token.chosen.token_bytes for token in delta.logprobs] if delta is not None else [] for delta in deltas]


def test_text_comes_as_it_is_settled() -> None:
    assert texts(run([b"Hel", b"lo"])) == ["Hel", "lo", None]


def test_no_half_characters() -> None:
    smile = "😀".encode()
    assert texts(run([b"a" + smile[:1], smile[1:3], smile[3:] + b"b"])) == ["a", None, "😀b", None]


def test_bytes_that_never_become_a_character_come_at_the_end() -> None:
    assert texts(run([b"a", b"\xf0\x9f"])) == ["a", None, "�"]


def test_a_stop_string_ends_the_answer_and_is_not_shown() -> None:
    assert texts(run([b"one ST", b"OP two", b"three"], stop=["STOP"])) == ["one ", None, None]


def test_what_might_have_been_a_stop_string_comes_at_the_end() -> None:
    assert texts(run([b"one ST"], stop=["STOP"])) == ["one ", "ST"]


def test_a_token_is_reported_with_the_text_that_begins_in_it() -> None:
    assert reported(run([b"Hel", b"lo"], logprobs=True)) == [[b"Hel"], [b"lo"], []]
    smile = "😀".encode()
    assert reported(run([smile[:2], smile[2:], b"x"], logprobs=True)) == [[], [smile[:2], smile[2:]], [b"x"], []]


def test_tokens_of_a_stop_string_are_not_reported() -> None:
    assert reported(run([b"one S", b"TO", b"P two"], stop=["STOP"], logprobs=True)) == [[b"one S"], [], [], []]


def test_held_back_tokens_are_reported_with_their_text() -> None:
    assert reported(run([b"one", b"ST", b"O", b"x"], stop=["STOP"], logprobs=True)) == [
        [b"one"],
        [],
        [],
        [b"ST", b"O", b"x"],
        [],
    ]


def test_tokens_without_text_are_reported_in_the_end() -> None:
    assert reported(run([b"a", b"", b"\xf0"], logprobs=True)) == [[b"a"], [], [], [b"", b"\xf0"]]
    assert run([b""], logprobs=True)[-1] == TextDelta(
        "", (ChosenToken(chosen=TokenLogprob(token_bytes=b"", logprob=-0.0), top=()),)
    )


def test_the_likeliest_tokens_come_along() -> None:
    pipeline = AnswerPipeline(Pieces(b"a", b"b"), stop=())
    delta = only(pipeline.feed(Token(id="a", token=0, logprob=-1.0, top=((1, -0.5), (0, -1.0)))))
    assert delta is not None
    (token,) = delta.logprobs
    assert token.chosen == TokenLogprob(token_bytes=b"a", logprob=-1.0)
    assert [(possible.token_bytes, possible.logprob) for possible in token.top] == [(b"b", -0.5), (b"a", -1.0)]


@pytest.mark.parametrize("n_per_token", [1, 2, 3, 7, 100])
def test_the_text_does_not_depend_on_how_it_is_cut(n_per_token: int) -> None:
    whole = "Zażółć gęślą jaźń 😀 — STO, STOP, never seen".encode()
    pieces = [whole[start : start + n_per_token] for start in range(0, len(whole), n_per_token)]
    shown = "".join(text or "" for text in texts(run(pieces, stop=["STOP", "never"])))
    assert shown == "Zażółć gęślą jaźń 😀 — STO, "
