"""The words after `hipfire serve`: which of them is the model, the host, the port."""

import ipaddress
import re
from collections.abc import Callable, Iterable

import attrs

_BRACKETED = re.compile(r"\[(?P<host>[^\[\]]+)\](?::(?P<port>\d+))?")
_HOST_AND_PORT = re.compile(r"(?P<host>[^:/]+):(?P<port>\d+)")


@attrs.frozen(kw_only=True)
class Where:
    """What the words say; None for what they do not. The port is text still: its setting checks it."""

    model: str | None = None
    host: str | None = None
    port: str | None = None


def read_where(words: Iterable[str], is_model: Callable[[str], bool]) -> Where:
    """Read `[model] [host] [port]`, in which `host:port`, `[ipv6]:port` or a bare port may stand.

    `is_model` knows the models: a tag such as `flux.schnell:1` looks like host and port. Raises ValueError.
    """
    found = Where()
    for word in words:
        for name, value in _meanings(word, is_model, model_is_known=found.model is not None).items():
            if getattr(found, name) is not None:
                raise ValueError(f"there are two {name}s, {getattr(found, name)} and {value}")
            found = attrs.evolve(found, **{name: value})
    return found


def _meanings(word: str, is_model: Callable[[str], bool], *, model_is_known: bool) -> dict[str, str]:
    if word.isascii() and word.isdigit():
        return {"port": word}
    if not model_is_known and is_model(word):
        return {"model": word}
    if match := _BRACKETED.fullmatch(word) or _HOST_AND_PORT.fullmatch(word):
        return {name: value for name, value in match.groupdict().items() if value is not None}
    if word == "localhost" or _is_address(word) or model_is_known:
        return {"host": word}
    return {"model": word}


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True
