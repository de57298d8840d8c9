"""What `run` and `chat` ask, and what comes back, whoever answers it. Knows no HTTP and no engine."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from hipfire.config.schema import SETTINGS, Origin, Settings

OnText = Callable[[str], None]
"""Called with each further piece of the answer, or of the reasoning."""


@attrs.frozen(kw_only=True)
class Listener:
    """Who is told the answer and the reasoning as they come."""

    on_text: OnText
    on_reasoning: OnText


@attrs.frozen(kw_only=True)
class Turn:
    """One message of a conversation. `role` is system, user or assistant."""

    role: str
    content: str
    reasoning: str = ""


@attrs.frozen(kw_only=True)
class Question:
    """A conversation for a model to go on with. `wishes` are the sampling fields that a person chose, `reasoning` what
    they said about that, both by their HTTP names.
    """

    model: str
    turns: Sequence[Turn]
    seed: int | None
    wishes: Mapping[str, float]
    reasoning: Mapping[str, object] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class Outcome:
    """How an answer ended. `timings` are in milliseconds and tokens per second, by their HTTP names.

    `warnings` says what was asked for and could not be heeded.
    """

    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    timings: Mapping[str, float]
    warnings: Sequence[str] = ()


def prompt_of(words: Sequence[str], piped: str) -> str:
    """The words in a row, and below them what was piped in; empty if nothing but blanks is there."""
    parts = (" ".join(words), piped.strip("\n"))
    return "\n\n".join(part for part in parts if part.strip())


def question_of(settings: Settings, *, model: str, turns: Sequence[Turn], seed: int | None = None) -> Question:
    """The question with what was set for this run alone.

    What config.toml or the model's card say is left out: whoever answers knows them too.
    """

    def chosen(group: str) -> dict[str, Any]:
        return {
            setting.name: settings.sourced(key).value
            for key, setting in SETTINGS.items()
            if setting.group == group and _is_chosen(settings, key)
        }

    reasoning = {name: value for name, value in chosen("reasoning").items() if value not in ("auto", None)}
    if "thinking" in reasoning:
        reasoning["thinking"] = reasoning["thinking"] == "on"
    return Question(model=model, turns=turns, seed=seed, wishes=chosen("generation"), reasoning=reasoning)


def system_of(settings: Settings) -> str | None:
    """The system prompt that was set for this run alone."""
    return settings.prompt.system if _is_chosen(settings, "prompt.system") else None


def _is_chosen(settings: Settings, key: str) -> bool:
    return settings.sourced(key).source.origin >= Origin.ENVIRONMENT
