"""`GET /v1/models`: the models on this machine that can be used."""

from quart import Response

from hipfire.errors import ModelNotFound
from hipfire.server.problems import json_response
from hipfire.server.routes.route import Call, Route
from hipfire.service.listing import ModelEntry


async def _list(call: Call) -> Response:
    entries = await call.service.list_models()
    return json_response({"object": "list", "data": [_document(entry) for entry in entries]})


async def _one(call: Call) -> Response:
    wanted = await call.service.resolve(call.arguments["id_"])
    for entry in await call.service.list_models():
        if entry.id == wanted.tag:
            return json_response(_document(entry))
    raise ModelNotFound(f"{wanted.tag} cannot be used", hint="hipfire list says why")


def _document(entry: ModelEntry) -> dict[str, object]:
    return {
        "id": entry.id,
        "object": "model",
        "created": entry.modified_s,
        "owned_by": "hipfire",
        "hipfire": {
            "arch": entry.architecture,
            "quant": entry.quant,
            "size_bytes": entry.nbytes,
            "context_length": entry.context_length,
            "loaded": entry.is_loaded,
        },
    }


ROUTES = (Route("GET", "/v1/models", _list), Route("GET", "/v1/models/<id:id_>", _one))
