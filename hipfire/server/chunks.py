"""The frames of a streamed chat: `data: {"object": "chat.completion.chunk", ...}`.

A token costs what its own text costs: what is the same in all of a stream's chunks is encoded once.
"""

import json

from hipfire.server.completion import calls_document
from hipfire.server.logprobs import logprobs_document
from hipfire.service.events import ChosenToken, Completed, ReasoningDelta, TextDelta, ToolCalls

DONE = b"data: [DONE]\n\n"
KEEPALIVE = b": keepalive\n\n"

_encode_text = json.encoder.encode_basestring_ascii
_UNFINISHED = '"finish_reason":null}]}\n\n'


def error_frame(body: dict[str, object]) -> bytes:
    """The frame of an error after the first chunk."""
    return f"data: {json.dumps(body)}\n\n".encode()


class ChunkEncoder:
    """Encodes the chunks of one stream."""

    def __init__(self, *, id_: str, created: int, model: str) -> None:
        head = {"id": id_, "object": "chat.completion.chunk", "created": created, "model": model}
        self._head = "data: " + json.dumps(head, separators=(",", ":")).removesuffix("}")
        self._choice = self._head + ',"choices":[{"index":0,"delta":'
        self._content = self._choice + '{"content":'

    def role(self) -> bytes:
        """The first chunk."""
        return (self._choice + '{"role":"assistant","content":""},' + _UNFINISHED).encode("ascii")

    def text(self, delta: TextDelta) -> bytes:
        logprobs = _logprobs(delta.logprobs) if delta.logprobs else ""
        return f"{self._content}{_encode_text(delta.text)}}},{logprobs}{_UNFINISHED}".encode("ascii")

    def reasoning(self, delta: ReasoningDelta) -> bytes:
        return f'{self._choice}{{"reasoning_content":{_encode_text(delta.text)}}},{_UNFINISHED}'.encode("ascii")

    def tool_calls(self, event: ToolCalls) -> bytes:
        calls = [{"index": index, **call} for index, call in enumerate(calls_document(event.calls))]
        return f'{self._choice}{{"tool_calls":{json.dumps(calls)}}},{_UNFINISHED}'.encode("ascii")

    def finish(self, completed: Completed, extension: dict[str, object]) -> bytes:
        """The last chunk with a choice; `extension` is hipfire's own part of it."""
        return (
            f'{self._choice}{{}},"finish_reason":{json.dumps(completed.finish_reason)}}}],'
            f'"hipfire":{json.dumps(extension)}}}\n\n'
        ).encode("ascii")

    def usage(self, usage: dict[str, object]) -> bytes:
        return f'{self._head},"choices":[],"usage":{json.dumps(usage)}}}\n\n'.encode("ascii")


def _logprobs(tokens: tuple[ChosenToken, ...]) -> str:
    return f'"logprobs":{json.dumps(logprobs_document(tokens))},'
