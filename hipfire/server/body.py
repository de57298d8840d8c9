"""Reads request bodies, no more of them than allowed. Knows nothing of what is in them but that it is JSON."""

import json
from typing import NoReturn

import trio
from quart import Request

from hipfire.errors import InvalidJson, RequestTooLarge
from hipfire.server.problems import RequestTimeout

# A sender that is silent this long in the middle of its body has gone without saying so.
_SILENCE_TIMEOUT_S = 30.0


async def read_json(request: Request, *, max_nbytes: int) -> object:
    """The document in the body, whatever its Content-Type.

    Raises RequestTooLarge, RequestTimeout and InvalidJson.
    """
    return parse_json(await _read(request, max_nbytes))


async def _read(request: Request, max_nbytes: int) -> bytes:
    if request.content_length is not None and request.content_length > max_nbytes:
        _refuse(max_nbytes)
    body = bytearray()
    with trio.move_on_after(_SILENCE_TIMEOUT_S) as patience:
        async for chunk in request.body:
            body += chunk
            if len(body) > max_nbytes:
                _refuse(max_nbytes)
            patience.deadline = trio.current_time() + _SILENCE_TIMEOUT_S
    if patience.cancelled_caught:
        raise RequestTimeout(f"nothing more of the body came for {_SILENCE_TIMEOUT_S:g} s")
    return bytes(body)


def _refuse(max_nbytes: int) -> NoReturn:
    raise RequestTooLarge(f"the body is larger than {max_nbytes} bytes", hint="serve.max_request_bytes")


def parse_json(body: bytes) -> object:
    """The document in some bytes. Raises InvalidJson."""
    try:
        document: object = json.loads(body, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"the body is not JSON: {error}") from None
    except UnicodeDecodeError:
        raise InvalidJson("the body is not JSON: it is not UTF-8") from None
    except ValueError:
        # Python's own limit, against numbers that take a second to read.
        raise InvalidJson("a number in the body has too many digits") from None
    except RecursionError:
        raise InvalidJson("the body is JSON nested too deeply") from None
    return document


def _refuse_constant(name: str) -> NoReturn:
    raise InvalidJson(f"the body is not JSON: {name} is not a JSON value")
