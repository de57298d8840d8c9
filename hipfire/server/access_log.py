"""One log line for each request, when it is over. Knows ASGI and no endpoint.

An answer that was not finished, since the client left or the server stopped, is told apart from one that was.
"""

import logging

import trio
from hypercorn.typing import ASGIFramework, ASGIReceiveCallable, ASGISendCallable, ASGISendEvent, HTTPScope, Scope

log = logging.getLogger("hipfire.server")

# Asked for every few seconds by whoever watches over the server, and by every `hipfire ps`.
_QUIET = frozenset({b"/health", b"/stats"})


class AccessLog:
    """Wraps an ASGI application."""

    def __init__(self, app: ASGIFramework) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_at = trio.current_time()
        status, is_complete = 0, False

        async def watched_send(event: ASGISendEvent) -> None:
            nonlocal status, is_complete
            if event["type"] == "http.response.start":
                status = event["status"]
            await send(event)
            if event["type"] == "http.response.body":
                is_complete = not event.get("more_body", False)

        try:
            await self._app(scope, receive, watched_send)
        finally:
            _write_line(scope, status, is_complete=is_complete, duration_s=trio.current_time() - began_at)


def _write_line(scope: HTTPScope, status: int, *, is_complete: bool, duration_s: float) -> None:
    # As it was sent: decoded it might hold line feeds.
    path = scope["raw_path"].decode("ascii", "backslashreplace")
    level = logging.DEBUG if scope["raw_path"] in _QUIET else logging.INFO
    outcome = str(status) if is_complete else "broken off"
    fields = {
        "method": scope["method"],
        "path": path,
        "status": status,
        "complete": is_complete,
        "duration_ms": round(1000 * duration_s, 1),
    }
    log.log(level, "%s %s %s, %.0f ms", scope["method"], path, outcome, 1000 * duration_s, extra={"fields": fields})
