"""Builds the two kinds of merging tokenizer that GGUF files describe, on Hugging Face's `tokenizers`.

`models.BPE` holds Python's lock while it builds: about a second for Gemma 3's 256,000 tokens and 515,000 merges, in
which no other thread of the process runs. It takes them in one call only, and reading the same from JSON takes twice
as long.

Control tokens are left out of what is built, so no text given to it can come out as one. Knows no special tokens,
no BOS and no chat.
"""

from collections.abc import Mapping
from typing import cast

from tokenizers import Regex, Tokenizer, models, pre_tokenizers

from hipfire.errors import CorruptFile
from hipfire.formats.checkpoint import MetaValue
from hipfire.text.pretokenizers import PreTokenizer
from hipfire.text.vocabulary import Kind, Vocabulary

Merges = list[tuple[str, str]]


def merged_by_rank(vocabulary: Vocabulary, metadata: Mapping[str, MetaValue], pre: PreTokenizer) -> Tokenizer:
    """Byte pair encoding by the file's own list of merges, over the pieces that `pre` cuts."""
    tokens = _ordinary_tokens(vocabulary)
    lines = metadata.get("tokenizer.ggml.merges")
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines[:1]):
        raise CorruptFile("a byte pair vocabulary without merges (tokenizer.ggml.merges)")
    model = models.BPE(
        tokens,
        _merges(cast(list[str], lines), tokens, vocabulary.control),
        byte_fallback=not pre.byte_level,
        ignore_merges=pre.ignore_merges,
    )
    tokenizer = Tokenizer(model)
    steps: list[pre_tokenizers.PreTokenizer] = [
        pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.splits
    ]
    if pre.byte_level:
        steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    return tokenizer


def merged_by_score(vocabulary: Vocabulary) -> Tokenizer:
    """SentencePiece's merging: of all neighbours that form a token, the pair whose token has the highest score.

    `tokenizers` merges by the rank of a pair. So every pair that forms a token becomes a merge, ranked by the score
    of what it forms. (Pairs whose tokens have one score are ranked by id here, and by place in SentencePiece.)
    """
    tokens = _ordinary_tokens(vocabulary)
    mergeable = [token for token in tokens.values() if vocabulary.kinds[token] != Kind.BYTE]
    mergeable.sort(key=vocabulary.scores.__getitem__, reverse=True)
    merges: Merges = []
    # Nearly all of the time that a large vocabulary takes is spent here, in this order of the two look-ups.
    for token in mergeable:
        text = vocabulary.texts[token]
        for cut in range(1, len(text)):
            left = text[:cut]
            if left in tokens:
                right = text[cut:]
                if right in tokens:
                    merges.append((left, right))
    return Tokenizer(models.BPE(tokens, merges, byte_fallback=True))


def _ordinary_tokens(vocabulary: Vocabulary) -> dict[str, int]:
    control = vocabulary.control
    return {text: token for token, text in enumerate(vocabulary.texts) if text and text not in control}


def _merges(lines: list[str], tokens: Mapping[str, int], control: Mapping[str, int]) -> Merges:
    """The file's merges ("left right" each, ranked by place), but for those that would form a control token."""
    merges: Merges = []
    for line in lines:
        # The left side may itself be a space.
        cut = line.find(" ", 1)
        left, right = line[:cut], line[cut + 1 :]
        if left + right in tokens and left in tokens and right in tokens:
            merges.append((left, right))
        elif cut < 0 or not control.keys() & {left, right, left + right}:
            raise CorruptFile(f"the merge {line!r} joins or forms what is no token (tokenizer.ggml.merges)")
    return merges
