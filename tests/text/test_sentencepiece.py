"""Merging by score against SentencePiece's own algorithm, on random texts."""

import heapq
import random
from pathlib import Path
from typing import Any, cast

from hipfire.formats.gguf import open_gguf
from hipfire.text.tokenizer import Tokenizer
from hipfire.text.vocabulary import Kind


class ScoreMerger:
    """Merges the neighbours that form the token of the highest score, the leftmost of equals, until none do.

    Source: `llm_tokenizer_spm_session` of llama.cpp, which has it from SentencePiece.
    """

    def __init__(self, texts: list[str], kinds: list[int], scores: list[float]) -> None:
        ordinary = (Kind.NORMAL, Kind.USER_DEFINED)
        self.tokens = {text: token for token, text in enumerate(texts) if kinds[token] in ordinary}
        self.bytes = [token for token, kind in enumerate(kinds) if kind == Kind.BYTE]
        self.scores = scores

    def encode(self, text: str) -> list[int]:
        symbols = list(text)
        after = [*range(1, len(symbols)), -1]
        before = list(range(-1, len(symbols) - 1))
        queue: list[tuple[float, int, int, str]] = []

        def offer(left: int, right: int) -> None:
            merged = symbols[left] + symbols[right]
            if left >= 0 and right >= 0 and merged in self.tokens:
                heapq.heappush(queue, (-self.scores[self.tokens[merged]], left, right, merged))

        for left in range(len(symbols) - 1):
            offer(left, left + 1)
        while queue:
            _, left, right, merged = heapq.heappop(queue)
            if not symbols[left] or not symbols[right] or symbols[left] + symbols[right] != merged:
                continue
            symbols[left], symbols[right] = merged, ""
            after[left] = after[right]
            if after[left] >= 0:
                before[after[left]] = left
            offer(before[left], left)
            offer(left, after[left])
        return [token for symbol in symbols if symbol for token in self.finish(symbol)]

    def finish(self, symbol: str) -> list[int]:
        token = self.tokens.get(symbol)
        return [token] if token is not None else [self.bytes[byte] for byte in symbol.encode()]


def random_text(rng: random.Random, words: list[str]) -> str:
    match rng.randrange(4):
        case 0:
            return "".join(rng.choices(words, k=rng.randint(1, 20)))
        case 1:
            # Runs: where one token can be cut in several ways, and where all scores are one in Llama's vocabulary.
            return rng.choice([" ", "a", " a", "=", "ha", "   x", "-", "0"]) * rng.randint(1, 100)
        case 2:
            return "".join(word[: rng.randint(1, 5)] for word in rng.choices(words, k=rng.randint(1, 20)))
        case _:
            return "".join(word[-3:] + " " * rng.randint(0, 20) for word in rng.choices(words, k=rng.randint(1, 10)))


def test_random_texts(llama_spm_path: Path, llama_spm: Tokenizer) -> None:
    with open_gguf(llama_spm_path) as checkpoint:
        texts, kinds, scores = (
            cast(Any, checkpoint.metadata[f"tokenizer.ggml.{key}"]) for key in ("tokens", "token_type", "scores")
        )
    merger = ScoreMerger(texts, kinds, scores)
    words = [text.replace("▁", " ") for text, kind in zip(texts, kinds, strict=True) if kind == Kind.NORMAL]
    rng = random.Random(20260115)
    for _ in range(1500):
        text = random_text(rng, words)
        assert llama_spm.encode(text) == merger.encode("▁" + text.replace(" ", "▁")), text
