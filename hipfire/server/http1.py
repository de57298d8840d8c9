"""HTTP/1.1 on one connection: what Hypercorn's own protocol, in 0.18, leaves to be wished. Knows no sockets."""

from dataclasses import replace

import h11
from hypercorn.protocol.events import Event, Response
from hypercorn.protocol.h11 import H11Protocol

from hipfire.server.problems import refused_body


class Http1Protocol(H11Protocol):
    """Answers what is no HTTP with a body of JSON, like every other error, and an offer to speak WebSocket like any
    other request: nothing here does, and a server may ignore such an offer.
    """

    async def _create_stream(self, request: h11.Request) -> None:
        headers = [(name, value) for name, value in request.headers if name != b"upgrade"]
        if len(headers) < len(request.headers):
            request = h11.Request(
                method=request.method, target=request.target, headers=headers, http_version=request.http_version
            )
        await super()._create_stream(request)

    async def stream_send(self, event: Event) -> None:
        # Answered before its body was here, a request is the connection's last; unless it is told, the client may send
        # the next one while the connection is being closed.
        if isinstance(event, Response) and self.connection.their_state is h11.SEND_BODY:
            event = replace(event, headers=[*event.headers, (b"connection", b"close")])
        await super().stream_send(event)

    async def _send_error_response(self, status_code: int) -> None:
        body = refused_body(status_code)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
            *self.config.response_headers("h11"),
        ]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())
