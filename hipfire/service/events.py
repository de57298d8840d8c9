"""What a chat yields: any number of TextDeltas, then one Completed. An error is raised instead."""

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


@attrs.frozen(kw_only=True)
class Usage:
    n_prompt: int
    n_cached: int
    n_generated: int


@attrs.frozen(kw_only=True)
class Timings:
    """`queue_ms` is the wait for a turn and for the model to be loaded. The others are the engine's own figures."""

    queue_ms: float
    prompt_ms: float
    decode_ms: float


@attrs.frozen(kw_only=True)
class Completed:
    """The end. `finish_reason` is stop or length; `warnings` says what was asked for and could not be heeded."""

    finish_reason: str
    usage: Usage
    timings: Timings
    warnings: tuple[str, ...] = ()


ChatEvent = TextDelta | Completed
