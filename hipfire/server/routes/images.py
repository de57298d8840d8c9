"""`POST /v1/images/…`: part of the API's shape, of which this build has no models."""

from quart import Response

from hipfire.errors import Unsupported
from hipfire.server.routes.route import Call, Route


async def _refuse(_: Call) -> Response:
    raise Unsupported("this build makes no images", hint="/v1/chat/completions answers with text")


ROUTES = (Route("POST", "/v1/images/generations", _refuse), Route("POST", "/v1/images/edits", _refuse))
