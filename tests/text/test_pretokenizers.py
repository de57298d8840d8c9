"""How each named pre-tokenizer cuts text: the byte-level vocabularies have no merges but those of whole words."""

import pytest
from tokenizers import Regex, pre_tokenizers

from hipfire.errors import UnsupportedFile
from hipfire.text.pretokenizers import pre_tokenizer


def pieces(name: str, text: str) -> list[str]:
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre_tokenizer(name).splits]
    return [piece for piece, _ in pre_tokenizers.Sequence(splits).pre_tokenize_str(text)]


CASES = {
    "default": ("I'll say: 12345", ["I", "'", "ll", " say", ":", " ", "123", "45"]),
    "gpt-2": ("I'll say:  12345\n\n x", ["I", "'ll", " say", ":", " ", " 12345", "\n\n", " x"]),
    "smollm": ("I'll say 123", ["I", "'ll", " say", " ", "1", "2", "3"]),
    "llama-bpe": ("I'LL say (hi) 12345\n\n x", ["I", "'LL", " say", " (", "hi", ")", " ", "123", "45", "\n\n", " x"]),
    "qwen2": ("I'LL 123 แก้", ["I", "'LL", " ", "1", "2", "3", " แก", "้"]),
    "qwen35": ("I'LL 123 แก้", ["I", "'LL", " ", "1", "2", "3", " แก้"]),
    "gpt-4o": ("camelCaseHTTPServer's a/b/\n", ["camel", "Case", "HTTPServer's", " a", "/b", "/\n"]),
    "tekken": ("camelCase's 123", ["camel", "Case", "'s", " ", "1", "2", "3"]),
    "tiny_aya": ("x 1234567", ["x", " ", "1", "234", "567"]),
    "deepseek-llm": ("Hi, 12345 世界\nx", ["Hi", ",", " ", "12345", " ", "世界", "\n", "x"]),
    "deepseek-coder": ("Hi, 123\nx", ["Hi", ",", " ", "1", "2", "3", "\n", "x"]),
    "deepseek-v3": ("Hi, 12345世界 (x)", ["Hi", ",", " ", "123", "45", "世界", " (", "x", ")"]),
    "falcon": ("Hi, 12345 `x`", ["Hi", ",", " ", "123", "45", " ", "`", "x", "`"]),
    "bailingmoe": ("a\n \n12", ["a", "\n \n", "1", "2"]),
    "seed-coder": ("a!\n12", ["a", "!", "\n", "1", "2"]),
    "gemma4": ("a b\n\nc", ["a b", "\n\n", "c"]),
}


@pytest.mark.parametrize("name", CASES)
def test_pieces(name: str) -> None:
    text, expected = CASES[name]
    assert pieces(name, text) == expected


@pytest.mark.parametrize("name", [*CASES, "dbrx", "glm4"])
def test_nothing_is_lost(name: str) -> None:
    text = " \t\r\n\n a'S  B1234567890½٣ é̂ß.,;/\\[]{}()!?  『世界』ｘＹ🦙\u200d\u00a0\u2028\0 "
    assert "".join(pieces(name, text)) == text


def test_unknown_names_are_refused_with_those_that_are_known() -> None:
    with pytest.raises(UnsupportedFile, match=r"'qwen9'.*deepseek-v3, .*qwen35, "):
        pre_tokenizer("qwen9")
