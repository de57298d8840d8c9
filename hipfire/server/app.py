"""Puts the HTTP server together: routes, errors and checks on Quart-Trio, sockets on `transport`.

Knows no endpoint of its own.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from socket import socket
from typing import Any, cast

import trio
from hypercorn.typing import ASGIReceiveCallable, ASGISendCallable
from quart import Response, request
from quart_trio import QuartTrio
from quart_trio.asgi import TrioASGIHTTPConnection
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.routing import BaseConverter

from hipfire.config.schema import Settings
from hipfire.errors import EngineUnavailable
from hipfire.server.access_log import AccessLog
from hipfire.server.cors import CorsPolicy, cors_policy
from hipfire.server.hosts import HostPolicy, exposure
from hipfire.server.keys import ApiKeys, shows_key
from hipfire.server.problems import Forbidden, InvalidApiKey, error_response, http_error_response
from hipfire.server.routes.route import Call, Route
from hipfire.server.routes.table import ROUTES
from hipfire.server.transport import Limits, serve_sockets
from hipfire.service.service import Service

log = logging.getLogger("hipfire.server")

_NURSERY = "hipfire.nursery"
# Whoever watches over the server needs to know no secret.
_KEYLESS = frozenset({"/health"})


class _Connection(TrioASGIHTTPConnection):
    """Gives every request a nursery of its own, which ends with it, also when nothing is sent any more."""

    async def __call__(self, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
        async with trio.open_nursery() as nursery:
            cast(dict[str, Any], self.scope)[_NURSERY] = nursery
            await super().__call__(receive, send)
            nursery.cancel_scope.cancel()


class _IdConverter(BaseConverter):
    """The rest of a path, whatever is in it: a model may be called by its file's path, which begins with a slash."""

    regex = r"[\s\S]+"
    part_isolating = False


def create_app(service: Service, settings: Settings, hosts: HostPolicy) -> QuartTrio:
    """The ASGI application."""
    app = QuartTrio("hipfire", static_folder=None)
    app.asgi_http_class = _Connection
    # Bodies are limited in size and silence where they are read; answers may take as long as they take.
    app.config.update(
        MAX_CONTENT_LENGTH=None, BODY_TIMEOUT=None, RESPONSE_TIMEOUT=None, PROVIDE_AUTOMATIC_OPTIONS=False
    )
    # A path is what it is: no redirect from //health.
    app.url_map.merge_slashes = False
    app.url_map.converters["id"] = _IdConverter

    _guard(app, hosts=hosts, keys=ApiKeys.of(settings.serve.api_keys), cors=cors_policy(settings.serve.cors_origins))
    app.register_error_handler(HTTPException, _on_http_error)
    app.register_error_handler(Exception, _on_error)
    for route in ROUTES:
        view = _view(route, service, settings)
        app.add_url_rule(route.path, f"{route.method} {route.path}", view, methods=[route.method])
    return app


def _guard(app: QuartTrio, *, hosts: HostPolicy, keys: ApiKeys, cors: CorsPolicy) -> None:
    """Have every request checked before its route is, and every answer say what web pages may do with it."""

    @app.before_request
    async def check() -> Response | None:
        if not hosts.allows(request.headers.get("Host", "")):
            raise Forbidden("this Host may not be used here", hint="serve.allowed_hosts allows more")
        # A browser that asks first shows no key.
        if request.method == "OPTIONS" and isinstance(request.routing_exception, MethodNotAllowed):
            headers = cors.preflight_headers(request.headers, request.routing_exception.valid_methods or ())
            if headers is not None:
                return _no_content(headers)
        if request.path not in _KEYLESS and not keys.admits(request.headers.get("Authorization", "")):
            if shows_key(request.headers.get("Authorization", "")):
                raise InvalidApiKey("the API key is not one of this server's")
            raise InvalidApiKey("this server needs an API key", hint="send one as Authorization: Bearer KEY")
        return None

    @app.after_request
    async def tell_pages(response: Response) -> Response:
        response.headers.update(cors.headers(request.headers.get("Origin")))
        return response


def _no_content(headers: dict[str, str]) -> Response:
    # Given no body at all, Quart asks for asyncio in the middle of the answer.
    response = Response(b"", status=204, headers=headers)
    del response.headers["Content-Type"], response.headers["Content-Length"]
    return response


def _view(route: Route, service: Service, settings: Settings) -> Callable[..., Awaitable[Response]]:
    async def view(**arguments: Any) -> Response:
        nursery = cast(dict[str, Any], request.scope)[_NURSERY]
        return await route.handler(
            Call(request=request, service=service, settings=settings, nursery=nursery, arguments=arguments)
        )

    return view


async def _on_http_error(error: HTTPException) -> Response:
    return http_error_response(error, request.path)


async def _on_error(error: Exception) -> Response:
    return error_response(error)


async def run_server(
    service: Service,
    bind: Sequence[socket],
    settings: Settings,
    shutdown: trio.Event,
    *,
    tls: ssl.SSLContext | None = None,
    task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve on listening or bound sockets until `shutdown`, then let what is in flight finish (`serve.drain_timeout`).

    `tls` is what to speak TLS with, see `server.tls`; without it plain HTTP is spoken.
    Raises EngineUnavailable when the service failed for good. `service.run` must be running.
    """
    addresses = [sock.getsockname()[0] for sock in bind]
    hosts = HostPolicy.for_binds(addresses, [settings.serve.host, *settings.serve.allowed_hosts])
    if warning := exposure(addresses, has_keys=bool(settings.serve.api_keys)):
        log.warning("%s", warning)
    limits = Limits(stall_timeout_s=settings.serve.stream_stall_timeout, drain_timeout_s=settings.serve.drain_timeout)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_stop_when_failed, service, shutdown)
        await serve_sockets(
            AccessLog(create_app(service, settings, hosts)),
            bind,
            limits=limits,
            tls=tls,
            shutdown=shutdown,
            cut_off=service.stop_answering,
            task_status=task_status,
        )
        nursery.cancel_scope.cancel()
    if service.failed.is_set():
        raise EngineUnavailable("the engine keeps dying", hint="its last words are in the log")


async def _stop_when_failed(service: Service, shutdown: trio.Event) -> None:
    await service.failed.wait()
    shutdown.set()
