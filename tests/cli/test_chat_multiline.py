import io

import pytest

from hipfire.cli.chat.multiline import is_complete, read_messages, unquoted


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("a", True),
        ("", True),
        ("a\\", False),
        ('"""', False),
        ('"""a', False),
        ('"""a\n"', False),
        ('"""a\n"""', True),
        ('"""a""" ', True),
        ('a """', True),
    ],
)
def test_enter_sends_what_is_complete(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


@pytest.mark.parametrize(
    ("text", "message"), [('"""\na\n  b\n"""', "a\n  b"), ('"""a"""', "a"), ('"""', '"""'), (" a\n", " a\n")]
)
def test_quotes_are_no_part_of_the_message(text: str, message: str) -> None:
    assert unquoted(text) == message


def test_lines_become_messages() -> None:
    lines = io.StringIO('one\n\ntwo\\\n  three\n"""four\n\nfive"""\nsix')
    assert list(read_messages(lines)) == ["one", "", "two\n  three", "four\n\nfive", "six"]


def test_what_is_unfinished_at_the_end_is_a_message_too() -> None:
    assert list(read_messages(io.StringIO('"""one\ntwo\n'))) == ['"""one\ntwo']
    assert list(read_messages(io.StringIO("one\\\n"))) == ["one"]
