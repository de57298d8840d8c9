"""A vocabulary as a GGUF file's metadata tells it: the tokens, what kind each is, which begin and end a text.

Knows no tokenization: `tokenizer` cuts text, `bpe` merges it.
"""

import re
from collections.abc import Mapping
from enum import IntEnum
from types import UnionType
from typing import cast

import attrs

from hipfire.errors import CorruptFile
from hipfire.formats.checkpoint import MetaValue


class Kind(IntEnum):
    """`tokenizer.ggml.token_type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


# Tokens that end an answer in some family, by their text (llama.cpp's list, `special_eog_ids`).
_ENDS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|calls|>", "<|flush|>", "<end_of_turn>",
        "<|endoftext|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
        "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[", "</s>",
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<reponame>",
        "<|file_sep|>",
    }
)  # fmt: skip
# These only where the file types them as control tokens: elsewhere they are a web page's tags or plain words.
_ENDS_IF_CONTROL = frozenset({"</s>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<eos>"})
# gpt-oss and Solar end a message with <|end|> and an answer with one of these, so that <|end|> ends no answer there.
_ENDS_OF_CHANNELS = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})

_CONTROL_KINDS = (Kind.CONTROL, Kind.UNKNOWN)
_END_KEYS = ("eos", "eot", "eom")

# Chat markup that files type as USER_DEFINED (gpt-oss's <|channel|>, Gemma 4's <|tool_call> and <channel|>, Gemma 3's
# <start_of_image>) or leave untyped: a client must no more be able to write it than a control token.
_MARKUP = re.compile(r"<\|[^<>|\s]+\|?>|<[^<>|\s]+\|>|<｜[^<>｜\s]+｜>|<(?:start|end)_of_\w+>")


@attrs.frozen(kw_only=True, eq=False)
class Vocabulary:
    """Tokens by id. `texts` are as the file spells them, in the vocabulary's own alphabet.

    `control`: the text of each token that text from a client must never become -> its id. These are the file's
    CONTROL and UNKNOWN tokens, and those that look like chat markup whatever the file calls them.
    `atoms`: USER_DEFINED tokens, which are found in any text before it is cut up -> id.
    `ends`: tokens that end an answer.
    """

    texts: list[str]
    kinds: list[int]
    scores: list[float]
    bos_id: int | None
    ends: frozenset[int]
    control: dict[str, int]
    atoms: dict[str, int]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, MetaValue], *, default_bos: int | None) -> "Vocabulary":
        """Reads the `tokenizer.ggml.*` keys. Raises CorruptFile where they are missing or contradict each other."""
        texts = _strings(metadata, "tokenizer.ggml.tokens")
        if not texts:
            raise CorruptFile("the file has no vocabulary (tokenizer.ggml.tokens)")
        kinds = cast(list[int], _numbers(metadata, "tokenizer.ggml.token_type", len(texts), default=Kind.NORMAL))
        scores = _numbers(metadata, "tokenizer.ggml.scores", len(texts), default=0.0)
        control = {
            text: token
            for token, (text, kind) in enumerate(zip(texts, kinds, strict=True))
            if kind in _CONTROL_KINDS or (text.startswith("<") and _MARKUP.fullmatch(text))
        }
        control.pop("", None)
        atoms = {
            text: token
            for token, (text, kind) in enumerate(zip(texts, kinds, strict=True))
            if kind == Kind.USER_DEFINED and text and text not in control
        }
        bos_id = _token_id(metadata, "bos", len(texts))
        return cls(
            texts=texts,
            kinds=kinds,
            scores=scores,
            bos_id=default_bos if bos_id is None else bos_id,
            ends=_ends(metadata, texts, control, kinds),
            control=control,
            atoms=atoms,
        )


def _ends(
    metadata: Mapping[str, MetaValue], texts: list[str], control: Mapping[str, int], kinds: list[int]
) -> frozenset[int]:
    """Every token that ends an answer: those the file names, and those of well-known texts."""
    known = {
        text for text in _ENDS & control.keys() if text not in _ENDS_IF_CONTROL or kinds[control[text]] == Kind.CONTROL
    }
    if any(channels <= known for channels in _ENDS_OF_CHANNELS):
        known.discard("<|end|>")
    named = (_token_id(metadata, key, len(texts)) for key in _END_KEYS)
    return frozenset(token for token in named if token is not None) | {control[text] for text in known}


def _strings(metadata: Mapping[str, MetaValue], key: str) -> list[str]:
    value = metadata.get(key, [])
    if not _is_list_of(value, str):
        raise CorruptFile(f"{key} is not a list of strings")
    return cast(list[str], value)


def _numbers(metadata: Mapping[str, MetaValue], key: str, n: int, *, default: float) -> list[float]:
    value = metadata.get(key)
    if value is None:
        return [default] * n
    if not _is_list_of(value, int | float):
        raise CorruptFile(f"{key} is not a list of numbers")
    numbers = cast(list[float], value)
    if len(numbers) < n:
        raise CorruptFile(f"{key} has {len(numbers)} values for {n} tokens")
    return numbers[:n]


def _is_list_of(value: object, kind: type | UnionType) -> bool:
    # A file's arrays have one element type, so the first element speaks for a quarter of a million.
    return isinstance(value, list) and (not value or isinstance(value[0], kind))


def _token_id(metadata: Mapping[str, MetaValue], name: str, n: int) -> int | None:
    key = f"tokenizer.ggml.{name}_token_id"
    value = metadata.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < n:
        raise CorruptFile(f"{key} is {value!r}, but the vocabulary has {n} tokens")
    return value
