"""Vocabularies of a few hundred tokens, as the metadata of a file that holds them."""

from collections.abc import Sequence

from hipfire.formats.checkpoint import MetaValue

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def printable_bytes() -> list[str]:
    """GPT-2's stand-in for each byte, in the order of its vocabulary: first the bytes that stand for themselves."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in plain]
    return [*map(chr, plain), *(chr(0x100 + index) for index in range(len(others)))]


def byte_level(
    *,
    merges: Sequence[str] = (),
    control: Sequence[str] = (),
    user_defined: Sequence[str] = (),
    normal: Sequence[str] = (),
    **extra: MetaValue,
) -> dict[str, MetaValue]:
    """A byte-level vocabulary: the 256 bytes, what the merges form, then the other tokens in the order given.

    `extra`: more of `tokenizer.ggml.*`, by the end of the key.
    """
    ordinary = [*printable_bytes(), *(merge.replace(" ", "") for merge in merges), *normal]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": [*ordinary, *control, *user_defined],
        "tokenizer.ggml.token_type": [
            *[NORMAL] * len(ordinary),
            *[CONTROL] * len(control),
            *[USER_DEFINED] * len(user_defined),
        ],
        "tokenizer.ggml.merges": list(merges),
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }


def sentence_piece(
    pieces: Sequence[str], *, user_defined: Sequence[str] = (), **extra: MetaValue
) -> dict[str, MetaValue]:
    """<unk>, <s>, </s>, the 256 byte tokens, then pieces of falling score."""
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": ["<unk>", "<s>", "</s>", *bytes_, *pieces, *user_defined],
        "tokenizer.ggml.token_type": [
            *(UNKNOWN, CONTROL, CONTROL),
            *[BYTE] * 256,
            *[NORMAL] * len(pieces),
            *[USER_DEFINED] * len(user_defined),
        ],
        "tokenizer.ggml.scores": [0.0] * 259
        + [-float(rank) for rank in range(len(pieces))]
        + [0.0] * len(user_defined),
        **{f"tokenizer.ggml.{key}": value for key, value in extra.items()},
    }
