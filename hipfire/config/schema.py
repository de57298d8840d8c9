"""Every setting, once: type, default, range, meaning and environment name.

Flags, validation, error messages and reference pages derive from these declarations. Knows no files, no environment
and no command line: `layers` reads those.
"""

import enum
import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import attrs

T = TypeVar("T")

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40

NO_PROFILE = "none"
EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS = ("low", "med", "high", "xhigh", "max", "uncapped")


class Origin(enum.IntEnum):
    """Where a value comes from; the larger wins."""

    BUILTIN = 0
    MODEL_FILE = 1
    """What the model's own file recommends."""
    CARD = 2
    """What the registry's card of the model recommends."""
    GLOBAL = 3
    """config.toml."""
    PROFILE = 4
    """The profile that is laid over config.toml."""
    MODEL = 5
    """The model's table in models.toml."""
    ENVIRONMENT = 6
    FLAG = 7


@attrs.frozen
class Source:
    """An origin and its place, for a person: `/home/me/.hipfire/config.toml:3`, `HIPFIRE_PORT`, `--max-seq`."""

    origin: Origin
    place: str

    @property
    def explicit(self) -> bool:
        """Whether a person chose the value, here or in a file, rather than hipfire, a model's file or its card."""
        return self.origin >= Origin.GLOBAL


BUILTIN = Source(Origin.BUILTIN, "built-in")


@attrs.frozen
class Sourced(Generic[T]):
    """A value that remembers where it came from."""

    value: T
    source: Source


Layer = Mapping[str, Sourced[Any]]
"""Checked values of some settings, by key: what one source says."""


@attrs.frozen(kw_only=True)
class Range:
    """Bounds of a number, both inside it unless `above` says that the lower one is not."""

    low: float
    high: float
    above: bool = False

    def holds(self, number: float) -> bool:
        return (self.low < number if self.above else self.low <= number) and number <= self.high

    def __str__(self) -> str:
        return f"above {self.low:g} and up to {self.high:.15g}" if self.above else f"{self.low:g} to {self.high:.15g}"


@attrs.frozen
class Form:
    """What a text, or each text of a list, may look like; `what` says it to a person, of a list in the plural."""

    what: str
    pattern: re.Pattern[str]


# Of RFC 6454, as browsers send it: no path, and a port only where it is not the scheme's own.
_ORIGINS = Form(
    "origins such as https://app.example, or *", re.compile(r"\*|[a-z][a-z0-9+.-]*://[^\s/?#@A-Z]+", re.ASCII)
)
# Ways to name one of several GPUs.
_DEVICES = (
    Form("hip:N", re.compile(r"hip:\d{1,3}", re.ASCII)),
    Form("gfxNNNN", re.compile(r"gfx[0-9a-f]{3,4}")),
    Form("a PCI address", re.compile(r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")),
    Form("a UUID", re.compile(r"GPU-[0-9a-fA-F]{16}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")),
)
# What a header can carry as it is.
_KEYS = Form("keys of visible ASCII characters", re.compile(r"[!-~]+"))


@attrs.frozen(kw_only=True)
class Declaration:
    """What `setting` keeps in a field's metadata; `Setting` adds what the field itself tells."""

    doc: str
    within: Range | None = None
    choices: tuple[str, ...] = ()
    forms: tuple[Form, ...] = ()
    env: str | None = None
    secret: bool = False


def setting(
    default: object,
    doc: str,
    *,
    within: Range | None = None,
    choices: tuple[str, ...] = (),
    forms: tuple[Form, ...] = (),
    env: str | None = None,
    secret: bool = False,
) -> Any:
    """Declare a setting as the field of a group.

    A default of None is written `auto` (numbers) or left out (text). `env` is the environment variable; without it
    the name is `HIPFIRE_` and the field's name in capitals. A text may have one of `forms` where it is none of
    `choices`. A secret is shown nowhere, neither in errors nor in logs.
    """
    declaration = Declaration(doc=doc, within=within, choices=choices, forms=forms, env=env, secret=secret)
    return attrs.field(default=default, repr=not secret, metadata={Declaration: declaration})


TOP_LEVEL = "top level"
"""Marks a group whose settings have keys without its name."""

PER_MODEL = "per model"
"""Marks a group whose settings may differ from model to model."""


@attrs.frozen(kw_only=True)
class Serve:
    """The HTTP server."""

    host: str = setting("127.0.0.1", "Name or address to listen on.")
    port: int = setting(11435, "TCP port to listen on.", within=Range(low=1, high=65535))
    default_model: str = setting(
        "auto",
        "Model that is loaded at start and answers requests that name none while nothing else is loaded: a tag or a"
        " path. auto: smollm2:135m.",
        env="HIPFIRE_MODEL",
    )
    idle_timeout: float = setting(
        300.0, "Seconds without a request before the model is unloaded; 0 keeps it.", within=Range(low=0, high=86400)
    )
    max_request_bytes: int = setting(
        64 * MIB, "Largest request body, in bytes; a larger one is refused.", within=Range(low=4 * KIB, high=4 * GIB)
    )
    max_queue: int = setting(
        64, "Requests that may wait for their turn; 0 sets no bound.", within=Range(low=0, high=100_000)
    )
    queue_timeout_ms: int = setting(
        600_000, "Milliseconds a request may wait for its turn; 0 waits for ever.", within=Range(low=0, high=3_600_000)
    )
    max_concurrent: int = setting(1, "Requests that are answered at the same time.", within=Range(low=1, high=256))
    drain_timeout: float = setting(
        30.0, "Seconds that requests in flight may take to finish at shutdown.", within=Range(low=0, high=3600)
    )
    stream_stall_timeout: float = setting(
        30.0,
        "Seconds until a client that reads nothing of its stream is dropped.",
        within=Range(low=0, high=3600),
    )
    allow_request_pull: bool = setting(False, "Whether a request may download a model that the registry has.")
    allow_request_paths: bool = setting(False, "Whether a request may name a model file by its path.")
    allowed_hosts: tuple[str, ...] = setting((), "Host names that requests may use besides the loopback ones.")
    api_keys: tuple[str, ...] = setting(
        (), "Keys of which a request must show one, but for /health; none: no key is asked for.",
        forms=(_KEYS,), secret=True,
    )  # fmt: skip
    cors_origins: tuple[str, ...] = setting(
        (), "Origins whose web pages may use the server from a browser; * is every origin.", forms=(_ORIGINS,)
    )
    certfile: str | None = setting(None, "Certificate chain (PEM) with which to speak TLS.")
    keyfile: str | None = setting(None, "Private key (PEM) of the certificate.")


@attrs.frozen(kw_only=True)
class Generation:
    """Sampling defaults, for what a request leaves out. A model's card and file come before the built-in values."""

    temperature: float = setting(
        0.30, "How freely tokens are chosen; 0 always takes the likeliest.", within=Range(low=0, high=2)
    )
    top_p: float = setting(
        0.80, "Sample from the likeliest tokens of this mass.", within=Range(low=0, high=1, above=True)
    )
    top_k: int = setting(20, "Sample from this many tokens; 0 or -1 is off.", within=Range(low=-1, high=1_000_000))
    min_p: float = setting(0.0, "Drop tokens less likely than this part of the best.", within=Range(low=0, high=1))
    repeat_penalty: float = setting(
        1.05, "Above 1 makes tokens that were there less likely.", within=Range(low=0, high=2, above=True)
    )
    presence_penalty: float = setting(0.0, "Taken off tokens that were there.", within=Range(low=-2, high=2))
    frequency_penalty: float = setting(0.0, "Taken off tokens for each time there.", within=Range(low=-2, high=2))
    max_tokens: int = setting(4096, "Longest answer, in tokens.", within=Range(low=1, high=393_216))


@attrs.frozen(kw_only=True)
class Reasoning:
    """What a request leaves open about reasoning. These keys stand at the top of the file, in no table."""

    thinking: str = setting(
        "on",
        "Whether a model reasons that can be told; unset, its family's own way holds, of some off.",
        choices=("on", "off"),
    )
    reasoning_effort: str = setting(
        "auto", "How strongly the prompt asks for reasoning; auto: as the family does.", choices=("auto", *EFFORTS)
    )
    thinking_budget: str | None = setting(None, "Most tokens of reasoning, by name.", choices=BUDGETS)
    max_think_tokens: int = setting(
        0, "Most tokens of reasoning, before the answer must come; 0 sets no bound.", within=Range(low=0, high=MIB)
    )


@attrs.frozen(kw_only=True)
class Memory:
    """What the model and its state may take."""

    max_seq: int | None = setting(
        None, "Tokens of prompt and answer; auto: the model's own, or what fits.", within=Range(low=512, high=1_048_576)
    )
    kv_cache: str = setting("auto", "Element type of the KV cache.", choices=("auto", "q16", "f16", "q8", "f32"))
    prefix_cache: bool = setting(True, "Whether a prompt may begin where an earlier conversation has come to.")
    prefix_cache_bytes: int | None = setting(
        None,
        "Bytes for conversations that wait for their next turn; auto: a quarter of what is free, at most 8 of them.",
        within=Range(low=0, high=TIB),
    )


@attrs.frozen(kw_only=True)
class Prompt:
    """What goes in front of a conversation."""

    system: str | None = setting(None, "System prompt of conversations that have none.")
    normalize: bool = setting(False, "Whether three and more newlines in a row in what clients send become two.")
    chat_template: str | None = setting(None, "Jinja file used in place of the model's own template.")


@attrs.frozen(kw_only=True)
class Hardware:
    """Where the model runs."""

    device: str = setting(
        "auto",
        "Device that runs the model; auto: a GPU that there are kernels for, else the CPU.",
        choices=("auto", "cpu", "reference"),
        forms=_DEVICES,
    )
    threads: int | None = setting(None, "CPU threads; auto: the physical cores.", within=Range(low=1, high=1024))
    graphs: bool = setting(True, "Whether a GPU gets a decode step in one launch; off if HIP's graphs are faulty.")


@attrs.frozen(kw_only=True)
class Log:
    """What is logged, on stderr."""

    level: str = setting(
        "info", "Least serious kind of line.", choices=("debug", "info", "warning", "error"), env="HIPFIRE_LOG_LEVEL"
    )
    format: str = setting(
        "text", "json: one JSON object a line, for programs.", choices=("text", "json"), env="HIPFIRE_LOG_FORMAT"
    )


@attrs.frozen(kw_only=True)
class Config:
    """How the settings themselves are found."""

    profile: str = setting(NO_PROFILE, "Profile that is laid over config.toml; none: no profile.")


@attrs.frozen(kw_only=True)
class Settings:
    """All settings. `sources` has the place of every value that is not built in, by key (`serve.port`)."""

    serve: Serve = attrs.field(factory=Serve)
    generation: Generation = attrs.field(factory=Generation, metadata={PER_MODEL: True})
    reasoning: Reasoning = attrs.field(factory=Reasoning, metadata={PER_MODEL: True, TOP_LEVEL: True})
    memory: Memory = attrs.field(factory=Memory, metadata={PER_MODEL: True})
    prompt: Prompt = attrs.field(factory=Prompt, metadata={PER_MODEL: True})
    hardware: Hardware = attrs.field(factory=Hardware, metadata={PER_MODEL: True})
    log: Log = attrs.field(factory=Log)
    config: Config = attrs.field(factory=Config, metadata={TOP_LEVEL: True})
    sources: Mapping[str, Source] = attrs.field(factory=dict)

    def sourced(self, key: str) -> Sourced[Any]:
        """The value of a key such as `serve.port`, and where it came from. KeyError for an unknown key."""
        declared = SETTINGS[key]
        value = getattr(getattr(self, declared.group), declared.name)
        return Sourced(value, self.sources.get(key, BUILTIN))

    def with_layer(self, layer: Layer) -> "Settings":
        """These settings and the layer, whichever says more: a value gives way to one of a larger origin only."""
        return self.replaced(
            {key: value for key, value in layer.items() if value.source.origin > self.sourced(key).source.origin}
        )

    def replaced(self, values: Mapping[str, Sourced[Any]]) -> "Settings":
        """These settings with other values for some keys. The values must have been checked: see `values`."""
        groups: dict[str, dict[str, Any]] = {}
        for key, sourced in values.items():
            declared = SETTINGS[key]
            groups.setdefault(declared.group, {})[declared.name] = sourced.value
        changed: dict[str, Any] = {name: attrs.evolve(getattr(self, name), **group) for name, group in groups.items()}
        sources = {**self.sources, **{key: sourced.source for key, sourced in values.items()}}
        return attrs.evolve(self, **changed, sources=sources)


@attrs.frozen(kw_only=True)
class Setting:
    """One declared setting, by its full name. `env` is its environment variable."""

    key: str
    group: str
    name: str
    type: Any
    default: object
    doc: str
    within: Range | None
    choices: tuple[str, ...]
    forms: tuple[Form, ...]
    env: str
    secret: bool
    per_model: bool


def _declared() -> Mapping[str, Setting]:
    found: dict[str, Setting] = {}
    for part in attrs.fields(Settings):
        if part.type is None or not attrs.has(part.type):
            continue
        for field in attrs.fields(part.type):
            declaration = field.metadata[Declaration]
            declared = Setting(
                key=field.name if TOP_LEVEL in part.metadata else f"{part.name}.{field.name}",
                group=part.name,
                name=field.name,
                type=field.type,
                default=field.default,
                doc=declaration.doc,
                within=declaration.within,
                choices=declaration.choices,
                forms=declaration.forms,
                env=declaration.env or f"HIPFIRE_{field.name.upper()}",
                secret=declaration.secret,
                per_model=PER_MODEL in part.metadata,
            )
            found[declared.key] = declared
    return MappingProxyType(found)


SETTINGS = _declared()
"""Every setting by its key, in the order of declaration."""


def _aliased() -> Mapping[str, str]:
    names = Counter(declared.name for declared in SETTINGS.values())
    return MappingProxyType(
        {declared.name: key for key, declared in SETTINGS.items() if names[declared.name] == 1 and declared.name != key}
    )


ALIASES = _aliased()
"""The key of each setting whose name no other group has (`port` is `serve.port`): the name alone stands for it."""


def key_of(name: str) -> str | None:
    """The key that a key or its last part alone stands for; None where it stands for none."""
    return name if name in SETTINGS else ALIASES.get(name)
