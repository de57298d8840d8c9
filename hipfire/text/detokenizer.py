"""Token ids to text, one at a time. Knows no stop strings and no markup.

The text of an answer is the UTF-8 reading of its tokens' bytes, and nothing else: like llama.cpp's server, it keeps
the space with which a SentencePiece answer may begin, and no space before punctuation is cleaned away.
"""

import codecs
from collections.abc import Mapping
from types import MappingProxyType
from typing import Protocol

_NOTHING: Mapping[int, bytes] = MappingProxyType({})


class TokenBytes(Protocol):
    """What the detokenizer needs of a tokenizer."""

    def token_bytes(self, token: int) -> bytes: ...


class Detokenizer:
    """Turns one answer's tokens into text as they come, never half a character.

    What `feed` and `close` return, joined, is `b"".join(bytes of each token).decode("utf-8", "replace")`.
    `shown` has the bytes of control tokens that are to be seen, by their id; others have none.
    """

    def __init__(self, tokenizer: TokenBytes, shown: Mapping[int, bytes] = _NOTHING) -> None:
        self._token_bytes = tokenizer.token_bytes
        self._shown = shown
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, token: int) -> str:
        """The text that `token` completes; "" while a character is still incomplete."""
        return self._decoder.decode(self._shown.get(token) or self._token_bytes(token))

    def close(self) -> str:
        """What was held back: U+FFFD if the answer ended within a character."""
        return self._decoder.decode(b"", final=True)
