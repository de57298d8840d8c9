"""`POST /v1/chat/completions`, streamed and not."""

import secrets
import time
from contextlib import aclosing

import trio
from quart import Response

from hipfire.errors import HipfireError
from hipfire.server.body import read_json
from hipfire.server.chunks import ChunkEncoder
from hipfire.server.completion import completion_document
from hipfire.server.problems import json_response
from hipfire.server.routes.route import Call, Route
from hipfire.server.schema import ChatRequest, parse_chat_request, to_job
from hipfire.server.sse import SILENCE_S, EventStream, start
from hipfire.service.events import ChatEvent, ChosenToken, Completed, Started, TextDelta


async def _chat(call: Call) -> Response:
    document = await read_json(call.request, max_nbytes=call.settings.serve.max_request_bytes)
    request = parse_chat_request(document)
    return await (_streamed if request.stream else _whole)(call, request)


async def _whole(call: Call, request: ChatRequest) -> Response:
    id_, created = _new_id(), int(time.time())
    model = ""
    texts: list[str] = []
    logprobs: list[ChosenToken] = []
    async with aclosing(call.service.chat(to_job(request))) as events:
        async for event in events:
            match event:
                case Started():
                    model = event.model
                case TextDelta():
                    texts.append(event.text)
                    logprobs.extend(event.logprobs)
                case Completed():
                    return json_response(
                        completion_document(
                            event,
                            id_=id_,
                            created=created,
                            model=model,
                            text="".join(texts),
                            logprobs=logprobs if request.logprobs else None,
                        )
                    )
    raise HipfireError("a chat ended without an end")


async def _streamed(call: Call, request: ChatRequest) -> Response:
    id_, created = _new_id(), int(time.time())
    events = start(call.nursery, call.service.chat(to_job(request)))
    started = await events.receive()
    if not isinstance(started, Started):
        raise _as_error(started)
    # A failure within this time is still a real error response.
    first: ChatEvent | Exception | None = None
    with trio.move_on_after(SILENCE_S):
        first = await events.receive()
    if isinstance(first, Exception):
        raise first
    include_usage = request.stream_options is not None and bool(request.stream_options.include_usage)
    encoder = ChunkEncoder(id_=id_, created=created, model=started.model)
    response = Response(
        EventStream(events, encoder, first=first, include_usage=include_usage), content_type="text/event-stream"
    )
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    # An answer may take as long as it takes.
    response.timeout = None
    return response


def _as_error(event: ChatEvent | Exception) -> Exception:
    return event if isinstance(event, Exception) else HipfireError(f"a chat began with {type(event).__name__}")


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


ROUTES = (Route("POST", "/v1/chat/completions", _chat),)
