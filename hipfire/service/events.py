"""What a chat yields: its deltas, the tool calls if there are any, then one Completed. An error is raised instead."""

import attrs


@attrs.frozen(kw_only=True)
class TokenLogprob:
    """A token, chosen or possible: the bytes it stands for and its natural log probability."""

    token_bytes: bytes
    logprob: float


@attrs.frozen(kw_only=True)
class ChosenToken:
    """A token of the answer and the likeliest ones in its place, the best first."""

    chosen: TokenLogprob
    top: tuple[TokenLogprob, ...]


@attrs.frozen
class TextDelta:
    """More of the answer. `logprobs` are of the tokens whose text begins in it; empty when not asked for."""

    text: str
    logprobs: tuple[ChosenToken, ...] = ()


@attrs.frozen
class ReasoningDelta:
    """More of the reasoning."""

    text: str


@attrs.frozen(kw_only=True)
class CallMade:
    """A tool call. `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str


@attrs.frozen
class ToolCalls:
    """All calls of an answer."""

    calls: tuple[CallMade, ...]


@attrs.frozen(kw_only=True)
class Usage:
    """`n_reasoning` of the generated tokens are reasoning."""

    n_prompt: int
    n_cached: int
    n_generated: int
    n_reasoning: int = 0


@attrs.frozen(kw_only=True)
class ReasoningInForce:
    """What became of the wishes. `effort` None: not said; `cap` None: no bound."""

    mode: str
    effort: str | None
    cap: int | None


@attrs.frozen(kw_only=True)
class Timings:
    """`queue_ms` is the wait for a turn and for the model to be loaded. The others are the engine's own figures."""

    queue_ms: float
    prompt_ms: float
    decode_ms: float


@attrs.frozen(kw_only=True)
class Completed:
    """The end. `finish_reason` is stop, length or tool_calls.

    `warnings` says what was asked for and could not be heeded. `reasoning` None: there is nothing to say of it.
    `keeps_thinking`: the reasoning is wanted in the answer's text too, where that is whole.
    """

    finish_reason: str
    usage: Usage
    timings: Timings
    warnings: tuple[str, ...] = ()
    reasoning: ReasoningInForce | None = None
    keeps_thinking: bool = False


Delta = TextDelta | ReasoningDelta | ToolCalls
ChatEvent = Delta | Completed
