"""API keys: who may use the server. Knows no routes."""

import hashlib
import hmac
from collections.abc import Iterable

import attrs

_SCHEME = "bearer"


@attrs.frozen(repr=False)
class ApiKeys:
    """Admits whoever shows one of the keys; everybody where there is none. Keeps no key, only its hash."""

    hashes: tuple[bytes, ...]

    @classmethod
    def of(cls, keys: Iterable[str]) -> "ApiKeys":
        return cls(tuple(_hashed(key) for key in keys))

    def admits(self, authorization: str) -> bool:
        """Whether an `Authorization` header will do. Takes as long for a nearly right key as for any other."""
        if not self.hashes:
            return True
        scheme, _, key = authorization.partition(" ")
        shown = _hashed(key.strip(" "))
        # All of them, lest the time tell which one it was.
        matches = [hmac.compare_digest(shown, known) for known in self.hashes]
        return any(matches) and scheme.lower() == _SCHEME


def shows_key(authorization: str) -> bool:
    """Whether an `Authorization` header has a key at all, be it a wrong one."""
    scheme, _, key = authorization.partition(" ")
    return scheme.lower() == _SCHEME and bool(key.strip(" "))


def _hashed(key: str) -> bytes:
    # Headers are read as Latin-1, so there is nothing in them that cannot be encoded.
    return hashlib.sha256(key.encode()).digest()
