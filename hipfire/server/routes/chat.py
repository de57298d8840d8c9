"""`POST /v1/chat/completions`, streamed and not."""

import secrets
import time

from quart import Response

from hipfire.server.body import read_json
from hipfire.server.chunks import ChunkEncoder
from hipfire.server.completion import completion_document, message_document
from hipfire.server.problems import json_response
from hipfire.server.routes.route import Call, Route
from hipfire.server.schema import ChatRequest, parse_chat_request, to_job
from hipfire.server.sse import EventStream
from hipfire.service.events import CallMade, ChosenToken, Completed, ReasoningDelta, TextDelta, ToolCalls


async def _chat(call: Call) -> Response:
    # The document goes at once: it may be large, and the answer may take its time.
    request = parse_chat_request(await read_json(call.request, max_nbytes=call.settings.serve.max_request_bytes))
    return await (_streamed if request.stream else _whole)(call, request)


async def _whole(call: Call, request: ChatRequest) -> Response:
    id_, created = _new_id(), int(time.time())
    texts: list[str] = []
    reasoning: list[str] = []
    calls: tuple[CallMade, ...] = ()
    logprobs: list[ChosenToken] = []
    completed: Completed | None = None
    with await call.service.open_chat(to_job(request)) as chat:
        async for event in await chat.start():
            match event:
                case TextDelta():
                    texts.append(event.text)
                    logprobs.extend(event.logprobs)
                case ReasoningDelta():
                    reasoning.append(event.text)
                case ToolCalls():
                    calls = event.calls
                case Completed():
                    completed = event
    assert completed is not None
    return json_response(
        completion_document(
            completed,
            id_=id_,
            created=created,
            model=chat.model,
            message=message_document(completed, text="".join(texts), reasoning="".join(reasoning), calls=calls),
            logprobs=logprobs if request.logprobs else None,
        )
    )


async def _streamed(call: Call, request: ChatRequest) -> Response:
    chat = await call.service.open_chat(to_job(request))
    encoder = ChunkEncoder(id_=_new_id(), created=int(time.time()), model=chat.model)
    include_usage = request.stream_options is not None and bool(request.stream_options.include_usage)
    stream = EventStream(chat, encoder, include_usage=include_usage)
    call.nursery.start_soon(stream.run)
    await stream.wait_for_first()
    response = Response(stream, content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.headers["X-Accel-Buffering"] = "no"
    # An answer may take as long as it takes.
    response.timeout = None
    return response


def _new_id() -> str:
    return f"chatcmpl-{secrets.token_hex(12)}"


ROUTES = (Route("POST", "/v1/chat/completions", _chat),)
