"""`GET /stats`: what the server did and does, in numbers."""

import trio
from quart import Response

from hipfire.server.problems import json_response
from hipfire.server.routes.route import Call, Route


async def _stats(call: Call) -> Response:
    service = call.service
    stats, resident, load_error = service.stats, service.resident, service.load_error
    return json_response(
        {
            "uptime_s": round(trio.current_time() - stats.started_at, 3),
            "queue_depth": service.admission.n_waiting,
            "in_flight": service.admission.n_running,
            "requests": {"served": stats.n_served, "failed": stats.n_failed, "cancelled": stats.n_cancelled},
            "prompt_tok_s": [round(speed.prompt_tok_s, 3) for speed in stats.recent],
            "decode_tok_s": [round(speed.decode_tok_s, 3) for speed in stats.recent],
            "prefix_cache": {"hits": stats.n_cache_hits, "tokens": stats.n_cached_tokens},
            "device": resident.engine.device if resident is not None else None,
            "memory_bytes": resident.engine.memory_nbytes if resident is not None else 0,
            "load_error": load_error.message if load_error is not None else None,
        }
    )


ROUTES = (Route("GET", "/stats", _stats),)
