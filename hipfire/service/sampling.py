"""Fills in what a request leaves open about sampling. Precedence: the request, then the model's settings."""

from collections.abc import Callable
from typing import TypeVar

import attrs

from hipfire.config.schema import Generation
from hipfire.errors import ContextLengthExceeded, InvalidRequest
from hipfire.service.request import SamplingWishes
from hipfire.wire.messages import Sampling

T = TypeVar("T")


def resolve_sampling(
    wishes: SamplingWishes, defaults: Generation, *, n_vocab: int, draw_seed: Callable[[], int]
) -> Sampling:
    """The sampling in force. Raises InvalidRequest for a bias on a token outside the vocabulary."""
    for token in wishes.logit_bias:
        if not 0 <= token < n_vocab:
            raise InvalidRequest(
                f"logit_bias.{token}: is no token id, the vocabulary has {n_vocab}", param=f"logit_bias.{token}"
            )
    temperature = _first(wishes.temperature, defaults.temperature)
    if wishes.temperature == 0:
        # Who asks for the argmax gets it: only a penalty that is asked for too may bend it.
        defaults = attrs.evolve(defaults, repeat_penalty=1.0, presence_penalty=0.0, frequency_penalty=0.0)
    top_k = _first(wishes.top_k, defaults.top_k)
    return Sampling(
        temperature=temperature,
        top_k=max(0, top_k),
        top_p=_first(wishes.top_p, defaults.top_p),
        min_p=_first(wishes.min_p, defaults.min_p),
        repeat_penalty=_first(wishes.repeat_penalty, defaults.repeat_penalty),
        presence_penalty=_first(wishes.presence_penalty, defaults.presence_penalty),
        frequency_penalty=_first(wishes.frequency_penalty, defaults.frequency_penalty),
        seed=draw_seed() if wishes.seed is None else wishes.seed,
        logit_bias=dict(wishes.logit_bias),
        n_logprobs=wishes.n_logprobs,
    )


def refuse_hopeless_length(n_chars: int, *, longest_token: int, context_length: int) -> None:
    """Refuse text that cannot fit, however it falls into tokens, before anybody spends minutes on counting them.

    Raises ContextLengthExceeded.
    """
    at_least = -(-n_chars // longest_token)
    if at_least >= context_length:
        raise ContextLengthExceeded(
            f"the messages have {n_chars} characters, at least {at_least} tokens,"
            f" and the context holds {context_length}",
            param="messages",
        )


def fit_max_tokens(wished: int | None, default: int, *, n_prompt: int, context_length: int) -> int:
    """How long the answer may become. A default shrinks to what is left; a wish must fit as it is.

    Raises ContextLengthExceeded.
    """
    left = context_length - n_prompt
    if left < 1:
        raise ContextLengthExceeded(
            f"the prompt has {n_prompt} tokens, and the context holds {context_length} with the answer",
            param="messages",
        )
    if wished is None:
        return min(default, left)
    if wished > left:
        raise ContextLengthExceeded(
            f"the prompt has {n_prompt} tokens and {wished} more are asked for, and the context holds {context_length}",
            param="max_tokens",
        )
    return wished


def _first(wished: T | None, default: T) -> T:
    return default if wished is None else wished
