"""Which web pages may use the server from a browser (CORS, in the Fetch standard). Knows no routes.

By default none may: then no header says anything of it, and browsers keep the answers from the page.
"""

import re
from collections.abc import Iterable

import attrs
from werkzeug.datastructures import Headers

_ANY = "*"
_MAX_AGE_S = 600
_HEADER_NAMES = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~, \t-]*")


@attrs.frozen
class CorsPolicy:
    """`origins` may use the server; `*` among them stands for all."""

    origins: frozenset[str]

    def allows(self, origin: str | None) -> bool:
        return origin is not None and (origin in self.origins or _ANY in self.origins)

    def headers(self, origin: str | None) -> dict[str, str]:
        """What every answer says to a page of this origin."""
        if not self.origins:
            return {}
        # A cache must not hand one page's answer to another.
        headers = {"Vary": "Origin"}
        if origin is not None and self.allows(origin):
            headers["Access-Control-Allow-Origin"] = origin
            headers["Access-Control-Expose-Headers"] = "Retry-After"
        return headers

    def preflight_headers(self, asked: Headers, methods: Iterable[str]) -> dict[str, str] | None:
        """The answer to a browser that asks first, by its request's headers; None where that is no such question, or
        not of an origin that is allowed.
        """
        if not self.allows(asked.get("Origin")) or "Access-Control-Request-Method" not in asked:
            return None
        headers = {
            "Access-Control-Allow-Methods": ", ".join(sorted(methods)),
            "Access-Control-Max-Age": str(_MAX_AGE_S),
        }
        # Clients send headers of their own (x-stainless-…): the origin is what is trusted, not the header.
        names = asked.get("Access-Control-Request-Headers", "")
        if names and _HEADER_NAMES.fullmatch(names):
            headers["Access-Control-Allow-Headers"] = names
        if asked.get("Access-Control-Request-Private-Network") == "true":
            headers["Access-Control-Allow-Private-Network"] = "true"
        return headers


def cors_policy(origins: Iterable[str]) -> CorsPolicy:
    """The policy of `serve.cors_origins`."""
    return CorsPolicy(frozenset(origins))
