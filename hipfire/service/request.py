"""A chat request in its canonical form, whatever dialect it came in: validated, frozen, defaults not yet filled in.

Knows no HTTP and no model: what depends on the model (limits of the vocabulary and the context) is checked later.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

_NOTHING: Mapping[str, object] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class Message:
    """One turn. `role` is system, user or assistant."""

    role: str
    content: str
    name: str | None = None
    reasoning_content: str | None = None

    def for_template(self) -> dict[str, object]:
        """What a chat template sees."""
        turn: dict[str, object] = {"role": self.role, "content": self.content}
        if self.name is not None:
            turn["name"] = self.name
        if self.reasoning_content is not None:
            turn["reasoning_content"] = self.reasoning_content
        return turn


@attrs.frozen(kw_only=True)
class SamplingWishes:
    """What the client says about sampling; None leaves it to the model's settings. `top_k` 0 and -1 are off.

    `seed` None draws one. `n_logprobs` None: no log probabilities.
    """

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    seed: int | None = None
    logit_bias: Mapping[int, float] = attrs.field(factory=dict)
    n_logprobs: int | None = None


@attrs.frozen(kw_only=True)
class ChatJob:
    """One conversation to be answered.

    `model` None is the loaded or the default one. `max_tokens` None: as many as are set and fit.
    `reasoning_wishes` are the names of the fields that ask for a mode, effort or cap of reasoning.
    """

    model: str | None
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingWishes = attrs.field(factory=SamplingWishes)
    template_arguments: Mapping[str, object] = _NOTHING
    reasoning_wishes: tuple[str, ...] = ()
