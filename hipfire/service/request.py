"""A chat request in its canonical form, whatever dialect it came in: validated, frozen, defaults not yet filled in.

Knows no HTTP and no model: what depends on the model (limits of the vocabulary and the context) is checked later.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

_NOTHING: Mapping[str, object] = MappingProxyType({})


@attrs.frozen(kw_only=True)
class PastCall:
    """A tool call of an earlier turn. `arguments` are JSON values."""

    id: str | None
    name: str
    arguments: Mapping[str, object]


@attrs.frozen(kw_only=True)
class Message:
    """One turn. `role` is system, user, assistant or tool. `call_id` is the call that a tool's result is of."""

    role: str
    content: str
    name: str | None = None
    reasoning_content: str | None = None
    calls: tuple[PastCall, ...] = ()
    call_id: str | None = None

    def for_template(self) -> dict[str, object]:
        """What a chat template sees."""
        turn: dict[str, object] = {"role": self.role, "content": self.content}
        if self.name is not None:
            turn["name"] = self.name
        if self.reasoning_content is not None:
            # Two names are in use.
            turn["reasoning_content"] = turn["thinking"] = self.reasoning_content
        if self.call_id is not None:
            turn["tool_call_id"] = self.call_id
        if self.calls:
            turn["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in self.calls
            ]
        return turn


@attrs.frozen(kw_only=True)
class Function:
    """A tool that may be called. `document` is what the client sent, for the template.

    `is_strict`: where a call is forced, every keyword of `parameters`, which stand at `path` in the request, must be
    heeded.
    """

    name: str
    parameters: Mapping[str, object]
    document: Mapping[str, object]
    is_strict: bool = False
    path: str = "tools"


@attrs.frozen(kw_only=True)
class AnswerFormat:
    """The answer must be JSON that a schema allows. `is_strict`: every keyword of it must be heeded.

    `path` is where in the request the schema stands.
    """

    schema: Mapping[str, object]
    is_strict: bool = True
    path: str = "response_format"


@attrs.frozen(kw_only=True)
class ReasoningWishes:
    """What a request says about reasoning: each value with the path of the field that says it, in order."""

    modes: tuple[tuple[str, bool], ...] = ()
    efforts: tuple[tuple[str, str], ...] = ()
    caps: tuple[tuple[str, int], ...] = ()
    budgets: tuple[tuple[str, str], ...] = ()
    preserves: tuple[tuple[str, bool], ...] = ()


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
    `keeps_one_call`: calls after the first are dropped. `must_call`: tools of which at least one must be called; if
    there are none, an answer will do, which must be of `answer_format`.
    """

    model: str | None
    messages: tuple[Message, ...]
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    sampling: SamplingWishes = attrs.field(factory=SamplingWishes)
    template_arguments: Mapping[str, object] = _NOTHING
    reasoning: ReasoningWishes = attrs.field(factory=ReasoningWishes)
    tools: tuple[Function, ...] = ()
    keeps_one_call: bool = False
    answer_format: AnswerFormat | None = None
    must_call: tuple[str, ...] = ()
