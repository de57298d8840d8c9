"""Rules of encoding on small vocabularies."""

import pytest
from small_vocabulary import NORMAL, byte_level, printable_bytes, sentence_piece

from hipfire.errors import CorruptFile, UnsupportedFile
from hipfire.formats.checkpoint import MetaValue
from hipfire.text.tokenizer import Tokenizer


def texts(metadata: dict[str, MetaValue], ids: list[int]) -> list[str]:
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    return [str(tokens[token]) for token in ids]


def test_merges_apply_in_the_order_of_the_file() -> None:
    metadata = byte_level(merges=["b c", "a b", "a bc"])
    assert texts(metadata, Tokenizer.from_metadata(metadata).encode("abcab")) == ["abc", "ab"]


def test_a_piece_that_is_a_token_is_not_cut_where_the_pre_tokenizer_ignores_merges() -> None:
    metadata = byte_level(merges=["a b"], normal=["abc"], pre="llama-bpe")
    assert texts(metadata, Tokenizer.from_metadata(metadata).encode("abc abc")) == ["abc", "Ġ", "ab", "c"]


def test_client_text_never_becomes_a_control_token() -> None:
    metadata = byte_level(control=["<|end|>", "ab"], merges=["a b"], normal=["x"])
    tokenizer = Tokenizer.from_metadata(metadata)
    control = set(tokenizer.control_texts.values())
    assert texts(metadata, tokenizer.encode("x<|end|>ab", parse_control=True)) == ["x", "<|end|>", "ab"]
    assert not control & set(tokenizer.encode("x<|end|>ab"))


@pytest.mark.parametrize("text", ["<|im_start|>", "<|tool_call>", "<channel|>", "<｜User｜>", "<start_of_image>"])
def test_chat_markup_is_control_whatever_the_file_types_it(text: str) -> None:
    for metadata in (byte_level(user_defined=[text]), byte_level(normal=[text])):
        tokenizer = Tokenizer.from_metadata(metadata)
        assert list(tokenizer.control_texts) == [text]
        assert tokenizer.control_texts[text] not in tokenizer.encode(text)
        assert tokenizer.encode(text, parse_control=True) == [256]


def test_chat_markup_keeps_its_bytes_unless_the_file_types_it_control() -> None:
    assert Tokenizer.from_metadata(byte_level(user_defined=["<|tool_call>"])).token_bytes(256) == b"<|tool_call>"
    assert Tokenizer.from_metadata(byte_level(control=["<|tool_call>"])).token_bytes(256) == b""


def test_user_defined_tokens_are_found_in_any_text_the_longest_first() -> None:
    metadata = byte_level(user_defined=["<think>", "\n\n", "\n"])
    assert texts(metadata, Tokenizer.from_metadata(metadata).encode("a<think>\n\n\nb")) == [
        *("a", "<think>", "\n\n", "\n", "b")
    ]


def test_a_byte_that_the_vocabulary_lacks_is_left_out_as_llama_cpp_does() -> None:
    metadata = byte_level()
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[0] = "unused"
    assert Tokenizer.from_metadata(metadata).encode("a!b") == [tokens.index("a"), tokens.index("b")]


def test_lone_surrogates_are_replaced() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level())
    assert tokenizer.encode("a\ud800b") == tokenizer.encode("a\ufffdb")


def test_bytes_of_byte_level_tokens() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level(normal=["Ġhé", "日"]))
    assert [tokenizer.token_bytes(token) for token in range(256)] == [
        bytes([byte]) for byte in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    ] + [bytes([byte]) for byte in [*range(0x21), *range(0x7F, 0xA1), 0xAD]]
    assert tokenizer.token_bytes(256) == b" h\xe9"
    # Outside the alphabet of bytes: plain text that was added.
    assert tokenizer.token_bytes(257) == "日".encode()


def test_sentence_piece_merges_by_score_and_falls_back_to_bytes() -> None:
    metadata = sentence_piece(["bc", "ab", "abc", "a", "b", "c", "▁", "▁a"])
    tokenizer = Tokenizer.from_metadata(metadata)
    assert texts(metadata, tokenizer.encode("abc abé")) == ["▁", "abc", "▁", "ab", "<0xC3>", "<0xA9>"]
    assert b"".join(map(tokenizer.token_bytes, tokenizer.encode("abc abé"))) == " abc abé".encode()


def test_sentence_piece_puts_a_space_after_each_control_token() -> None:
    metadata = sentence_piece(["a", "▁", "▁a"])
    tokenizer = Tokenizer.from_metadata(metadata)
    assert texts(metadata, tokenizer.encode("a</s>a a", parse_control=True)) == ["▁a", "</s>", "▁a", "▁a"]
    metadata = sentence_piece(["a", "▁", "▁a"], add_space_prefix=False)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert texts(metadata, tokenizer.encode("a</s>a a", parse_control=True)) == ["a", "</s>", "a", "▁a"]


@pytest.mark.parametrize(
    ("metadata", "bos_id", "adds_bos"),
    [
        (byte_level(), None, False),
        (byte_level(add_bos_token=True), None, False),
        (byte_level(bos_token_id=3), 3, False),
        (byte_level(bos_token_id=3, pre="llama-bpe"), 3, True),
        (byte_level(bos_token_id=3, pre="llama-bpe", add_bos_token=False), 3, False),
        (sentence_piece(["a"]), 1, True),
        (sentence_piece(["a"], add_bos_token=False), 1, False),
    ],
)
def test_whether_prompts_begin_with_bos(metadata: dict[str, MetaValue], bos_id: int | None, adds_bos: bool) -> None:
    tokenizer = Tokenizer.from_metadata(metadata)
    assert (tokenizer.bos_id, tokenizer.adds_bos) == (bos_id, adds_bos)


@pytest.mark.parametrize(
    ("metadata", "ends"),
    [
        (byte_level(control=["<|im_end|>", "<|im_start|>", "</s>"], eos_token_id=5), {5, 256, 258}),
        # A tag of HTML, in vocabularies that have those.
        (byte_level(normal=["</s>"], user_defined=["<|eot_id|>"]), {257}),
        (byte_level(eos_token_id=1, eot_token_id=2, eom_token_id=3), {1, 2, 3}),
        (byte_level(control=["<|end|>", "<|user|>"]), {256}),
        # Harmony: a message's end is not the answer's.
        (byte_level(control=["<|end|>", "<|return|>", "<|call|>"]), {257, 258}),
    ],
)
def test_tokens_that_end_an_answer(metadata: dict[str, MetaValue], ends: set[int]) -> None:
    assert Tokenizer.from_metadata(metadata).eos_ids == ends


def without(metadata: dict[str, MetaValue], key: str) -> dict[str, MetaValue]:
    return {name: value for name, value in metadata.items() if name != f"tokenizer.ggml.{key}"}


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (byte_level(model="bert"), "unknown tokenizer 'bert'.*gpt2, llama"),
        (without(byte_level(), "model"), "nothing of its tokenizer"),
        (byte_level(pre="gpt-5"), "unknown pre-tokenizer 'gpt-5'.*qwen2.*smollm"),
        (without(sentence_piece(["a"]), "token_type"), "without byte tokens"),
    ],
)
def test_unsupported(metadata: dict[str, MetaValue], message: str) -> None:
    with pytest.raises(UnsupportedFile, match=message):
        Tokenizer.from_metadata(metadata)


@pytest.mark.parametrize(
    ("metadata", "message"),
    [
        (without(byte_level(), "tokens"), "no vocabulary"),
        (byte_level(tokens="abc"), "not a list of strings"),
        (byte_level(token_type=[NORMAL]), "token_type has 1 values for 256 tokens"),
        (byte_level(token_type="abc"), "not a list of numbers"),
        (without(byte_level(), "merges"), "without merges"),
        (byte_level(merges=["a b"], tokens=printable_bytes(), token_type=[NORMAL] * 256), "the merge 'a b'"),
        (byte_level(normal=["ab"]) | {"tokenizer.ggml.merges": ["ab"]}, "the merge 'ab'"),
        (byte_level(eos_token_id=256), "eos_token_id is 256"),
        (byte_level(bos_token_id="a"), "bos_token_id is 'a'"),
        (byte_level(add_bos_token=1), "add_bos_token is 1"),
        (byte_level(pre=7), "pre is 7"),
    ],
)
def test_corrupt(metadata: dict[str, MetaValue], message: str) -> None:
    with pytest.raises(CorruptFile, match=message):
        Tokenizer.from_metadata(metadata)


def test_a_byte_token_must_spell_a_byte() -> None:
    metadata = sentence_piece(["a"])
    tokens = metadata["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    tokens[3] = "<0xZZ>"
    with pytest.raises(CorruptFile, match="<0xZZ>"):
        Tokenizer.from_metadata(metadata).token_bytes(3)
