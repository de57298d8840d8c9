"""`GET /health`: is the process alive, and what is it doing?"""

import os

from quart import Response

from hipfire.server.problems import json_response
from hipfire.server.routes.route import Call, Route


async def _health(call: Call) -> Response:
    health = call.service.health()
    return json_response(
        {
            "status": health.status,
            "model": health.model,
            "loading_model": health.loading_model,
            "pid": os.getpid(),
            "native": health.native,
        }
    )


ROUTES = (Route("GET", "/health", _health),)
