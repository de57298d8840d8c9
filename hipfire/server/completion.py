"""What a chat's end says, streamed or not, and the body of one that is not streamed."""

from collections.abc import Iterable, Mapping, Sequence

import attrs

from hipfire.server.logprobs import logprobs_document
from hipfire.service.events import CallMade, ChosenToken, Completed
from hipfire.service.stats import speed_of


def usage_document(completed: Completed) -> dict[str, object]:
    """OpenAI's `usage`."""
    usage = completed.usage
    return {
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_generated,
        "total_tokens": usage.n_prompt + usage.n_generated,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached},
        "completion_tokens_details": {"reasoning_tokens": usage.n_reasoning},
    }


def extension_document(completed: Completed) -> dict[str, object]:
    """The `hipfire` object: times in milliseconds, speeds in tokens per second, warnings where there are any, and what
    is in force of the wishes about reasoning where there is anything to say of it.
    """
    timings, speed = completed.timings, speed_of(completed)
    document: dict[str, object] = {
        "timings": {
            "queue_ms": round(timings.queue_ms, 3),
            "prompt_ms": round(timings.prompt_ms, 3),
            "prompt_tok_s": round(speed.prompt_tok_s, 3),
            "decode_ms": round(timings.decode_ms, 3),
            "decode_tok_s": round(speed.decode_tok_s, 3),
        }
    }
    if completed.warnings:
        document["config_warnings"] = list(completed.warnings)
    if completed.reasoning is not None:
        document["reasoning"] = attrs.asdict(completed.reasoning)
    return document


def calls_document(calls: Iterable[CallMade]) -> list[dict[str, object]]:
    """The `tool_calls` of a message."""
    return [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]


def message_document(
    completed: Completed, *, text: str, reasoning: str, calls: Sequence[CallMade]
) -> dict[str, object]:
    """The `message` of a choice."""
    if reasoning and completed.keeps_thinking:
        text = f"<think>\n{reasoning}\n</think>\n\n{text}"
    message: dict[str, object] = {"role": "assistant", "content": text if text or not calls else None}
    if reasoning:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = calls_document(calls)
    return message


def completion_document(
    completed: Completed,
    *,
    id_: str,
    created: int,
    model: str,
    message: Mapping[str, object],
    logprobs: Sequence[ChosenToken] | None,
) -> dict[str, object]:
    """A `chat.completion`."""
    return {
        "id": id_,
        "object": "chat.completion",
        "created": created,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "logprobs": None if logprobs is None else logprobs_document(logprobs),
                "finish_reason": completed.finish_reason,
            }
        ],
        "usage": usage_document(completed),
        "hipfire": extension_document(completed),
    }
