"""Which `Host` a request may name. On a loopback address only that guards against DNS rebinding: a web page whose own
name leads to 127.0.0.1 would otherwise be free to talk to the server.
"""

import ipaddress
import re
from collections.abc import Iterable, Sequence

import attrs

_PORT = re.compile(r":\d*$")


@attrs.frozen
class HostPolicy:
    """Allows the loopback names and `names`; everything where `is_open`."""

    names: frozenset[str]
    is_open: bool

    @classmethod
    def for_binds(cls, addresses: Iterable[str], allowed: Sequence[str]) -> "HostPolicy":
        """The policy of a server that listens on these addresses: a public one is there to be called by any name."""
        return cls(
            names=frozenset({"localhost", *(name.lower() for name in allowed)}),
            is_open=not all(_is_loopback(address) for address in addresses),
        )

    def allows(self, host: str) -> bool:
        """Whether a `Host` header will do. An empty one will: no browser leaves it out."""
        if self.is_open or not host:
            return True
        name = host.lower() if host.endswith("]") else _PORT.sub("", host.lower())
        return name in self.names or _is_loopback(name.removeprefix("[").removesuffix("]"))


def exposure(addresses: Sequence[str], *, has_keys: bool) -> str | None:
    """What to warn of where a server listens on these addresses: that others may use it, who need no key."""
    if has_keys or not HostPolicy.for_binds(addresses, ()).is_open:
        return None
    return (
        f"listening beyond this machine ({', '.join(addresses)}): every machine that can reach this one may use the"
        " server; set serve.api_keys"
    )


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
