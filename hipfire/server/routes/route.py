"""What a row of the table of routes is, and what a handler is given."""

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
from quart import Request, Response

from hipfire.config.schema import Settings
from hipfire.service.service import Service


@attrs.frozen(kw_only=True, eq=False)
class Call:
    """One request. What a handler starts in `nursery` ends with the request, and with the client's connection."""

    request: Request
    service: Service
    settings: Settings
    nursery: trio.Nursery
    arguments: dict[str, Any]
    """The variable parts of the path."""


Handler = Callable[[Call], Awaitable[Response]]


@attrs.frozen
class Route:
    """GET answers HEAD too. A handler may raise HipfireError's subclasses."""

    method: str
    path: str
    handler: Handler
