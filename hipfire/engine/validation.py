"""What a Generate must keep to before it may run: checked once, so that nothing below has to.

Knows no device and no sequence.
"""

import math
from collections.abc import Callable
from typing import Any

from hipfire.errors import ContextLengthExceeded, InvalidRequest
from hipfire.wire.messages import Generate, Sampling, SpanCap

MAX_LOGPROBS = 20


def check_request(request: Generate, *, n_vocab: int, context_length: int) -> None:
    """Raise InvalidRequest, or ContextLengthExceeded where the context has no room for one more token."""
    prompt = request.prompt
    if not prompt:
        raise InvalidRequest("the prompt is empty", param="prompt")
    if min(prompt) < 0 or max(prompt) >= n_vocab:
        bad = next(token for token in prompt if not 0 <= token < n_vocab)
        raise InvalidRequest(f"token {bad} is not in the vocabulary of {n_vocab}", param="prompt")
    if len(prompt) >= context_length:
        raise ContextLengthExceeded(
            f"the prompt has {len(prompt)} tokens and the context holds {context_length}, the answer's among them",
            param="prompt",
        )
    if request.max_tokens < 1:
        raise InvalidRequest(f"max_tokens is {request.max_tokens}, not 1 or more", param="max_tokens")
    _check_sampling(request.sampling, n_vocab)
    if request.cap is not None:
        _check_cap(request.cap, n_vocab)


def _check_cap(cap: SpanCap, n_vocab: int) -> None:
    if cap.max_tokens < 1 or not cap.close_ids or not cap.forced_ids:
        raise InvalidRequest("a cap needs a number of tokens, and those that close the span", param="cap")
    for token in cap.forced_ids:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(f"token {token} is not in the vocabulary of {n_vocab}", param="cap")


def _check_sampling(sampling: Sampling, n_vocab: int) -> None:
    for name, holds, range_text in _RANGES:
        value = getattr(sampling, name)
        if not holds(value):
            raise InvalidRequest(f"{name} is {value}, not {range_text}", param=name)
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < n_vocab:
            raise InvalidRequest(f"token {token} is not in the vocabulary of {n_vocab}", param="logit_bias")
        if not math.isfinite(bias):
            raise InvalidRequest(f"the bias of token {token} is {bias}", param="logit_bias")


# Every test is false for NaN.
_RANGES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("temperature", lambda value: 0 <= value < math.inf, "0 or more"),
    ("top_k", lambda value: value >= 0, "0 or more"),
    ("top_p", lambda value: 0 < value <= 1, "above 0 and at most 1"),
    ("min_p", lambda value: 0 <= value <= 1, "from 0 to 1"),
    ("repeat_penalty", lambda value: 0 < value < math.inf, "above 0"),
    ("presence_penalty", math.isfinite, "finite"),
    ("frequency_penalty", math.isfinite, "finite"),
    ("penalty_window", lambda value: value >= 0, "0 or more"),
    ("seed", lambda value: 0 <= value < 1 << 64, "from 0 to 2**64 - 1"),
    ("n_logprobs", lambda value: value is None or 0 <= value <= MAX_LOGPROBS, f"from 0 to {MAX_LOGPROBS}"),
)
