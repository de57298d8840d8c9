"""What is in a streamed answer."""

import json
from typing import Any

import attrs
from scripted_server import ScriptedServer


@attrs.frozen(kw_only=True)
class Streamed:
    """`keys`: the keys of each delta, in order."""

    content: str
    reasoning: str
    calls: list[dict[str, Any]]
    finish_reason: str
    keys: list[tuple[str, ...]]
    hipfire: dict[str, Any]
    usage: dict[str, Any]


async def stream(server: ScriptedServer, **fields: object) -> Streamed:
    response = await server.chat(stream=True, stream_options={"include_usage": True}, **fields)
    assert response.status_code == 200, response.text
    *frames, done, rest = response.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    *chunks, usage = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas[-1] == {}
    return Streamed(
        content="".join(delta.get("content", "") for delta in deltas),
        reasoning="".join(delta.get("reasoning_content", "") for delta in deltas),
        calls=[call for delta in deltas for call in delta.get("tool_calls", [])],
        finish_reason=chunks[-1]["choices"][0]["finish_reason"],
        keys=[tuple(delta) for delta in deltas],
        hipfire=chunks[-1]["hipfire"],
        usage=usage["usage"],
    )
