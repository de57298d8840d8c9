"""Errors as HTTP answers: the status of each error code, and the one shape of an error body."""

import json
import logging
from collections.abc import Mapping
from types import MappingProxyType

from quart import Response
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from hipfire.errors import EngineUnavailable, HipfireError, InvalidRequest, ServerBusy

log = logging.getLogger("hipfire.server")

_STATUS: Mapping[str, int] = MappingProxyType({
    "invalid_request": 400,
    "invalid_json": 400,
    "context_length_exceeded": 400,
    "unsupported": 400,
    "invalid_api_key": 401,
    "forbidden": 403,
    "model_not_found": 404,
    "request_timeout": 408,
    "request_too_large": 413,
    "download_failed": 503,
    "server_busy": 503,
    "engine_unavailable": 503,
})  # fmt: skip
_INTERNAL = "internal_error"
_RESTART_S = 1

_CHAT = ": use /v1/chat/completions"
# OpenAI's other ways to have text made.
_INSTEAD: Mapping[str, str] = MappingProxyType({"/v1/completions": _CHAT, "/v1/responses": _CHAT})

# Of the framework's own refusals.
_HTTP_CODES: Mapping[int, str] = MappingProxyType({404: "not_found", 405: "method_not_allowed"})


class Forbidden(HipfireError):
    """A request that may be the work of a foreign web page."""

    code = "forbidden"


class InvalidApiKey(HipfireError):
    """A request without one of the keys in `serve.api_keys`."""

    code = "invalid_api_key"


class RequestTimeout(HipfireError):
    """The request's body did not arrive."""

    code = "request_timeout"


def error_body(error: Exception) -> tuple[int, dict[str, object]]:
    """The status and body of an error. The details of one that is not the client's business go to the log only."""
    if not isinstance(error, HipfireError) or error.code not in _STATUS:
        # An error with a code of its own says all there is to say; only a bug needs a traceback.
        is_bug = not isinstance(error, HipfireError) or error.code == _INTERNAL
        log.error("a request failed: %s", error, exc_info=error if is_bug else None)
        return 500, _body(500, _INTERNAL, "Something went wrong in the server; its log says what.", None)
    status = _STATUS[error.code]
    param = error.param if isinstance(error, InvalidRequest) else None
    return status, _body(status, error.code, str(error), param)


def error_response(error: Exception) -> Response:
    """The answer to a request that failed before anything was sent."""
    status, body = error_body(error)
    response = json_response(body, status)
    if isinstance(error, ServerBusy):
        response.headers["Retry-After"] = str(error.retry_after_s)
    elif isinstance(error, EngineUnavailable):
        response.headers["Retry-After"] = str(_RESTART_S)
    elif isinstance(error, InvalidApiKey):
        response.headers["WWW-Authenticate"] = "Bearer"
    return response


def http_error_response(error: HTTPException, path: str) -> Response:
    """The answer to a request for `path` that no route takes."""
    status = error.code or 500
    if status >= 500:
        return error_response(error)
    message = {404: f"there is no such path{_INSTEAD.get(path, '')}", 405: "the path does not have this method"}.get(
        status, error.name
    )
    response = json_response(_body(status, _HTTP_CODES.get(status, "invalid_request"), message, None), status)
    if isinstance(error, MethodNotAllowed) and error.valid_methods is not None:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def json_response(document: object, status: int = 200) -> Response:
    """A body of JSON."""
    return Response(json.dumps(document, separators=(",", ":")), status, content_type="application/json")


_REFUSED = {
    431: "The head of this request is too large.",
    501: "This transfer encoding is not supported: send the body as it is, or chunked.",
}


def refused_body(status: int) -> bytes:
    """The body of the answer to bytes that are no HTTP request, or none that is read."""
    message = _REFUSED.get(status, "This is not a well-formed HTTP request.")
    return json.dumps(_body(status, "invalid_request", message, None)).encode()


def _body(status: int, code: str, message: str, param: str | None) -> dict[str, object]:
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
