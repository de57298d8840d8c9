"""The tokens of a vocabulary on their way from the server to the engine. Knows not what is done with them."""

import base64
from collections.abc import Sequence
from itertools import accumulate


def pack_tokens(tokens: Sequence[bytes]) -> tuple[tuple[int, ...], str]:
    """Tokens as lengths and one string of ASCII, to be sent."""
    return tuple(map(len, tokens)), base64.b64encode(b"".join(tokens)).decode("ascii")


def unpack_tokens(lengths: Sequence[int], packed: str) -> list[bytes]:
    """The tokens. Raises ValueError where the two do not fit each other."""
    data = base64.b64decode(packed, validate=True)
    if min(lengths, default=0) < 0 or sum(lengths) != len(data):
        raise ValueError(f"{len(data)} bytes for tokens of {sum(lengths)}")
    ends = accumulate(lengths)
    return [data[end - length : end] for end, length in zip(ends, lengths, strict=True)]
