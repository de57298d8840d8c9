"""What a chat's end says, streamed or not, and the body of one that is not streamed."""

from collections.abc import Sequence

from hipfire.server.logprobs import logprobs_document
from hipfire.service.events import ChosenToken, Completed
from hipfire.service.stats import speed_of


def usage_document(completed: Completed) -> dict[str, object]:
    """OpenAI's `usage`."""
    usage = completed.usage
    return {
        "prompt_tokens": usage.n_prompt,
        "completion_tokens": usage.n_generated,
        "total_tokens": usage.n_prompt + usage.n_generated,
        "prompt_tokens_details": {"cached_tokens": usage.n_cached},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def extension_document(completed: Completed) -> dict[str, object]:
    """The `hipfire` object: times in milliseconds, speeds in tokens per second, warnings where there are any."""
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
    return document


def completion_document(
    completed: Completed, *, id_: str, created: int, model: str, text: str, logprobs: Sequence[ChosenToken] | None
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
                "message": {"role": "assistant", "content": text},
                "logprobs": None if logprobs is None else logprobs_document(logprobs),
                "finish_reason": completed.finish_reason,
            }
        ],
        "usage": usage_document(completed),
        "hipfire": extension_document(completed),
    }
