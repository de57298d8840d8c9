"""The messages between server and engine, all frozen. One JSON object a line; see `framing`.

Server to engine: Load, Unload, Vocabulary, Generate, Cancel. Engine to server: all others.
Every `Generate` is answered by a `Started` unless it ends before, any number of `Token`s, and then exactly one of
`Finished`, `Failed`, `Cancelled`.
Every `Load` is answered by any number of `LoadProgress` and then exactly one of `Loaded`, `LoadFailed`.
Knows token ids only: no text, no HTTP.
"""

import attrs


@attrs.frozen(kw_only=True)
class Sampling:
    """How the next token is chosen from the logits, in this order: bias, penalties, greedy or
    temperature, top-k, top-p, min-p.

    `temperature` 0 is exact argmax. `top_k` 0 is off. `seed` is in 0..2**64-1 and always set: who wants
    fresh entropy draws it before. `repeat_penalty` looks at the last `penalty_window` tokens of
    prompt and answer, `presence_penalty` and `frequency_penalty` at those of the answer alone.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_window: int = 256
    seed: int = 0
    logit_bias: dict[int, float] = attrs.field(factory=dict)
    n_logprobs: int | None = None
    """None: no log probabilities. 0..20: the chosen token's, and this many of the likeliest."""


@attrs.frozen(kw_only=True)
class Load:
    """Load a model in place of the one that is there: that one's generations fail with `engine_unavailable`."""

    path: str
    device: str = "auto"
    n_threads: int | None = None
    max_seq: int | None = None
    """Tokens a sequence may hold; None: the model's trained context, or what memory allows."""
    kv_cache: str = "auto"
    graphs: bool = True
    """Whether a GPU may replay steps as graphs."""
    max_concurrent: int = 1
    prefix_cache: bool = True
    """Whether a prompt may begin with the state of a sequence that is running or has ended."""
    prefix_cache_nbytes: int | None = None
    """Bytes of state that may be held beyond that of `max_concurrent` sequences; None: what memory allows."""


@attrs.frozen(kw_only=True)
class Unload:
    """Free the model, if there is one: its generations fail with `engine_unavailable`. Answered by Unloaded."""


@attrs.frozen(kw_only=True)
class Vocabulary:
    """What the loaded model's tokens stand for. Comes before the first Generate with a grammar, and is not answered.

    `data` is the tokens' bytes, one after the other, in base64; `lengths` says how many each has: none, if it is a
    control token or otherwise has no text.
    """

    lengths: tuple[int, ...]
    data: str
    end_ids: tuple[int, ...]
    """Tokens that end a text, at least one."""


@attrs.frozen(kw_only=True)
class SpanCap:
    """Bounds a span of the answer, from `open_ids` (its beginning, where there are none) to `close_ids`.

    When the span has `max_tokens` tokens and is not closed, `forced_ids` follow, whatever the model would say.
    """

    max_tokens: int
    open_ids: tuple[int, ...]
    close_ids: tuple[int, ...]
    forced_ids: tuple[int, ...]


@attrs.frozen(kw_only=True)
class Generate:
    """Answer a prompt. Beyond `max_concurrent` of the Load they wait, first come first served.

    `id` is in no other generation under way: with one that is, this Generate fails and the other goes on.
    """

    id: str
    prompt: tuple[int, ...]
    max_tokens: int
    stop_ids: tuple[int, ...]
    """Tokens that end the answer. They are not sent as `Token`."""
    sampling: Sampling
    cap: SpanCap | None = None
    grammar: str | None = None
    """What the whole answer must be, in llguidance's Lark; the answer ends when nothing can be added to it."""


@attrs.frozen(kw_only=True)
class Cancel:
    """End a generation; for an id that is not under way (it may just have ended) there is no answer."""

    id: str


@attrs.frozen(kw_only=True)
class Hello:
    """The first message of an engine that is ready for work."""

    pid: int
    version: str


@attrs.frozen(kw_only=True)
class Heartbeat:
    """Sent every second. `busy_s` is the age of the step under way, 0 when there is none."""

    busy_s: float


@attrs.frozen(kw_only=True)
class LoadProgress:
    stage: str
    fraction: float


@attrs.frozen(kw_only=True)
class Loaded:
    path: str
    architecture: str
    device: str
    """What was chosen, for a person: `cpu (avx2, 2 threads)`."""
    native: bool
    n_vocab: int
    context_length: int
    """Tokens a sequence may hold."""
    kv_cache: str
    memory_nbytes: int
    load_ms: float


@attrs.frozen(kw_only=True)
class LoadFailed:
    path: str
    code: str
    message: str


@attrs.frozen(kw_only=True)
class Unloaded:
    pass


@attrs.frozen(kw_only=True)
class Started:
    """A generation has its turn. The first `n_cached` tokens of its prompt were in the prefix cache."""

    id: str
    n_cached: int


@attrs.frozen(kw_only=True)
class Token:
    """One token of an answer, and its log probability when asked for."""

    id: str
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


@attrs.frozen(kw_only=True)
class Finished:
    """`reason`: `stop` (a stop id came), or `length` (max_tokens, or the context is full).

    `n_cached` is that of Started. `n_generated` counts the Tokens that were sent. `prompt_ms` is up to the first token,
    without the wait for a slot.
    """

    id: str
    reason: str
    n_prompt: int
    n_cached: int
    n_generated: int
    prompt_ms: float
    decode_ms: float


@attrs.frozen(kw_only=True)
class Failed:
    id: str
    code: str
    message: str


@attrs.frozen(kw_only=True)
class Cancelled:
    id: str
    n_generated: int = 0


ToEngine = Load | Unload | Vocabulary | Generate | Cancel
FromEngine = (
    Hello | Heartbeat | LoadProgress | Loaded | LoadFailed | Unloaded | Started | Token | Finished | Failed | Cancelled
)
