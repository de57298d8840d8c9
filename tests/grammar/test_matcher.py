from collections.abc import Sequence

import numpy as np
import pytest

from hipfire.errors import InvalidRequest
from hipfire.grammar.matcher import Constraint, TokenTable
from hipfire.grammar.rules import Rules
from hipfire.grammar.tokens import pack_tokens, unpack_tokens

A, B, AB, QUOTE, HALF, BROKEN, TAG, OTHER_TAG, END, OTHER_END = range(10)
TOKENS = (b"a", b"b", b"ab", b'"', "é".encode()[:1], b"\xff", b"", b"", b"", b"")
TAGS = {"<tag>": TAG, "<other>": OTHER_TAG}


def rules() -> Rules:
    """That know the control tokens, where a text is nothing but one."""
    return Rules(lambda text: [TAGS.get(text, text)])


def table(tokens: Sequence[bytes] = TOKENS) -> TokenTable:
    return TokenTable(tokens, end_ids=[END, OTHER_END])


def constraint(start: str, grammar: Rules | None = None) -> Constraint:
    return table().constrain((grammar or rules()).grammar(start))


def allowed(constraint: Constraint) -> list[int]:
    mask = constraint.allowed()
    assert mask.shape == (len(TOKENS),)
    assert mask.dtype == np.bool_
    return np.flatnonzero(mask).tolist()


def test_only_what_goes_on_with_the_text_is_allowed() -> None:
    walk = constraint('"ab" "a"?')
    assert allowed(walk) == [A, AB]
    walk.accept(A)
    assert allowed(walk) == [B]
    assert not walk.is_complete
    walk.accept(B)
    assert allowed(walk) == [A, END, OTHER_END]
    assert not walk.is_complete
    walk.accept(A)
    assert walk.is_complete


def test_a_control_token_is_allowed_where_a_grammar_names_it_and_nowhere_else() -> None:
    grammar = rules()
    walk = constraint(f"{grammar.text('<other>')} TEXT {grammar.text('<tag>')}", grammar)
    assert allowed(walk) == [OTHER_TAG]
    walk.accept(OTHER_TAG)
    # Any text, also half a character; the byte 0xFF is in none, and the library's own mark of control tokens.
    assert allowed(walk) == [A, B, AB, QUOTE, HALF, TAG]
    walk.accept(TAG)
    assert walk.is_complete


def test_text_does_not_spell_out_the_control_token_that_ends_it() -> None:
    tokens = [bytes([byte]) for byte in range(0x80)] + [b""] * 2
    grammar = Rules(lambda text: [0x80 if text == "</x>" else text])
    walk = TokenTable(tokens, end_ids=[0x81]).constrain(grammar.grammar(grammar.until("</x>")))
    for byte in b"a</y></x":
        walk.accept(byte)
    assert not walk.allowed()[ord(">")]
    assert walk.allowed()[0x80]


def test_a_closer_of_text_ends_a_text_at_its_first_place() -> None:
    grammar = rules()
    walk = constraint(f'{grammar.until("ba")} "b"', grammar)
    walk.accept(A)
    walk.accept(AB)
    walk.accept(A)
    assert allowed(walk) == [B]


def test_a_token_that_may_not_come_is_an_error_and_stays_one() -> None:
    walk = constraint('"ab"')
    with pytest.raises(InvalidRequest, match="cannot be followed"):
        walk.accept(B)
    assert not walk.is_complete
    with pytest.raises(InvalidRequest):
        walk.allowed()


def test_an_end_that_comes_too_early_is_an_error() -> None:
    with pytest.raises(InvalidRequest):
        constraint('"ab"').accept(END)


@pytest.mark.parametrize("grammar", ["start: nothing", "", 'start: %json {"type": 7}', "start: /(/"])
def test_a_grammar_that_is_none_is_an_error(grammar: str) -> None:
    with pytest.raises(InvalidRequest, match="cannot be kept to"):
        table().constrain(grammar)


def test_no_token_at_all_is_an_error() -> None:
    with pytest.raises(InvalidRequest):
        constraint('"c"').allowed()


def test_what_is_beyond_the_limits_is_an_error_in_mid_text_and_no_freedom() -> None:
    grammar = rules()
    schema = {"type": "object", "properties": {f"p{i}": {"type": "null"} for i in range(1500)}}
    tokens = [bytes([byte]) for byte in range(0x80)] + [b""]
    walk = TokenTable(tokens, end_ids=[0x80]).constrain(grammar.grammar(grammar.json(schema, strict=True)))
    with pytest.raises(InvalidRequest, match="fewer optional parts"):
        walk.accept(ord("{"))
    with pytest.raises(InvalidRequest):
        walk.allowed()


def test_tokens_come_back_from_their_way() -> None:
    assert unpack_tokens(*pack_tokens(TOKENS)) == list(TOKENS)
    assert unpack_tokens((), "") == []


@pytest.mark.parametrize(
    ("lengths", "data"), [((3,), "YWI="), ((1,), "YWI="), ((-1, 3), "YWI="), ((2,), "YW"), ((2,), "Y!WI=")]
)
def test_tokens_that_do_not_fit_are_refused(lengths: tuple[int, ...], data: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        unpack_tokens(lengths, data)
