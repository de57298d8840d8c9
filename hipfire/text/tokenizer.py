"""Text to token ids and back to bytes, as the model file describes it.

Follows llama.cpp's `llama_vocab` where that and Hugging Face differ. Knows no chat template: `prompt` decides what of
a prompt may be a control token.
"""

import re
from collections.abc import Iterator, Mapping

from tokenizers import Tokenizer as MergingTokenizer

from hipfire.errors import CorruptFile, UnsupportedFile
from hipfire.formats.checkpoint import MetaValue
from hipfire.text.bpe import merged_by_rank, merged_by_score
from hipfire.text.literals import LiteralMatcher
from hipfire.text.pretokenizers import pre_tokenizer
from hipfire.text.vocabulary import Kind, Vocabulary

_SPACE = "▁"
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Tokenizer:
    """Encodes text and tells what bytes a token stands for.

    `n_vocab`: how many tokens there are. `longest_token`: no token stands for more characters than this.
    `bos_id`: the token that begins a text, if the vocabulary has one.
    `adds_bos`: whether a prompt must begin with it. `eos_ids`: every token that ends an answer.
    `control_texts`: the text of each token that text from a client never becomes -> its id.
    """

    def __init__(
        self,
        vocabulary: Vocabulary,
        merging: MergingTokenizer,
        *,
        byte_level: bool,
        space_prefix: bool,
        adds_bos: bool,
    ) -> None:
        self.n_vocab = len(vocabulary.texts)
        self.longest_token = max(map(len, vocabulary.texts), default=1)
        self.bos_id = vocabulary.bos_id
        self.eos_ids = vocabulary.ends
        self.adds_bos = adds_bos and vocabulary.bos_id is not None
        self.control_texts: Mapping[str, int] = vocabulary.control
        self._vocabulary = vocabulary
        self._merging = merging
        self._byte_level = byte_level
        self._space_prefix = space_prefix
        self._atoms = LiteralMatcher(vocabulary.atoms)
        self._atoms_and_control = LiteralMatcher(vocabulary.atoms | vocabulary.control)
        self._bytes_of = {character: byte for byte, character in _byte_alphabet()}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, MetaValue]) -> "Tokenizer":
        """The tokenizer of a model file. Raises UnsupportedFile where this build lacks it, CorruptFile for nonsense."""
        model = _text(metadata, "tokenizer.ggml.model", "")
        build = _KINDS.get(model)
        if not model:
            raise UnsupportedFile("the file says nothing of its tokenizer (tokenizer.ggml.model)")
        if build is None:
            raise UnsupportedFile(
                f"unknown tokenizer {model!r} (tokenizer.ggml.model); known are: {', '.join(sorted(_KINDS))}"
            )
        return build(metadata)

    def encode(self, text: str, *, parse_control: bool = False) -> list[int]:
        """Token ids of `text`, without BOS.

        `parse_control=False` is for a client's text: nothing in it becomes a control token.
        Lone surrogates, which no byte sequence can stand for, are read as U+FFFD.
        """
        text = _LONE_SURROGATE.sub("\ufffd", text)
        matcher = self._atoms_and_control if parse_control else self._atoms
        ids: list[int] = []
        after_special = True
        for part in matcher.split(text):
            if isinstance(part, int):
                ids.append(part)
            else:
                ids += self._merge(part, after_special=after_special)
            after_special = isinstance(part, int)
        return ids

    def token_bytes(self, token: int) -> bytes:
        """What `token` stands for in an answer: b"" for control, unknown and unused tokens."""
        text = self._vocabulary.texts[token]
        match self._vocabulary.kinds[token]:
            case Kind.USER_DEFINED:
                return text.encode()
            case Kind.BYTE:
                return _byte(text)
            case Kind.NORMAL if self._byte_level:
                return self._spelled_bytes(text)
            case Kind.NORMAL:
                return text.replace(_SPACE, " ").encode()
            case _:
                return b""

    def _merge(self, text: str, *, after_special: bool) -> list[int]:
        if not self._byte_level:
            if self._space_prefix and after_special:
                text = " " + text
            text = text.replace(" ", _SPACE)
        ids: list[int] = self._merging.encode(text, add_special_tokens=False).ids
        return ids

    def _spelled_bytes(self, text: str) -> bytes:
        try:
            return bytes(map(self._bytes_of.__getitem__, text))
        except KeyError:
            # Not in the alphabet of bytes: a token that was added as plain text.
            return text.encode()


def _by_rank(metadata: Mapping[str, MetaValue]) -> Tokenizer:
    default = "gemma4" if metadata.get("tokenizer.ggml.model") == "gemma4" else "default"
    pre = pre_tokenizer(_text(metadata, "tokenizer.ggml.pre", default))
    vocabulary = Vocabulary.from_metadata(metadata, default_bos=None)
    return Tokenizer(
        vocabulary,
        merged_by_rank(vocabulary, metadata, pre),
        byte_level=pre.byte_level,
        space_prefix=_flag(metadata, "tokenizer.ggml.add_space_prefix", default=False),
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", default=pre.adds_bos),
    )


def _by_score(metadata: Mapping[str, MetaValue]) -> Tokenizer:
    vocabulary = Vocabulary.from_metadata(metadata, default_bos=1)
    if vocabulary.kinds.count(Kind.BYTE) < 256:
        raise UnsupportedFile("a SentencePiece vocabulary without byte tokens")
    return Tokenizer(
        vocabulary,
        merged_by_score(vocabulary),
        byte_level=False,
        space_prefix=_flag(metadata, "tokenizer.ggml.add_space_prefix", default=True),
        adds_bos=_flag(metadata, "tokenizer.ggml.add_bos_token", default=True),
    )


_KINDS = {"gpt2": _by_rank, "gemma4": _by_rank, "llama": _by_score}


def _byte_alphabet() -> Iterator[tuple[int, str]]:
    """GPT-2's printable stand-in for each byte: itself where Latin-1 prints it, else the next from U+0100 on."""
    stand_in = 0x100
    for byte in range(256):
        if 0x21 <= byte <= 0x7E or 0xA1 <= byte <= 0xAC or 0xAE <= byte <= 0xFF:
            yield byte, chr(byte)
        else:
            yield byte, chr(stand_in)
            stand_in += 1


def _byte(text: str) -> bytes:
    """The byte of a byte token, spelled <0xHH>."""
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError:
        raise CorruptFile(f"{text!r} is typed as a byte token but is not spelled <0xHH>") from None


def _text(metadata: Mapping[str, MetaValue], key: str, default: str) -> str:
    value = metadata.get(key, default)
    if not isinstance(value, str):
        raise CorruptFile(f"{key} is {value!r}, not a name")
    return value


def _flag(metadata: Mapping[str, MetaValue], key: str, *, default: bool) -> bool:
    value = metadata.get(key, default)
    if not isinstance(value, bool):
        raise CorruptFile(f"{key} is {value!r}, not true or false")
    return value
