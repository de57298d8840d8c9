"""What `run` asks, and what comes back, whoever answers it. Knows no HTTP and no engine."""

from collections.abc import Callable, Mapping, Sequence

import attrs

from hipfire.config.schema import SETTINGS, Origin, Settings

OnText = Callable[[str], None]
"""Called with each further piece of the answer."""


@attrs.frozen(kw_only=True)
class Question:
    """One prompt for a model. `wishes` are the sampling fields that a person chose, by their HTTP names."""

    model: str
    prompt: str
    system: str | None
    seed: int | None
    wishes: Mapping[str, float]


@attrs.frozen(kw_only=True)
class Outcome:
    """How an answer ended. `timings` are in milliseconds and tokens per second, by their HTTP names."""

    model: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    timings: Mapping[str, float]


def prompt_of(words: Sequence[str], piped: str) -> str:
    """The words in a row, and below them what was piped in; empty if nothing but blanks is there."""
    parts = (" ".join(words), piped.strip("\n"))
    return "\n\n".join(part for part in parts if part.strip())


def question_of(settings: Settings, *, model: str, prompt: str, seed: int | None) -> Question:
    """The question with what was set for this run alone.

    What config.toml or the model's card say is left out: whoever answers knows them too.
    """

    def chosen(key: str) -> bool:
        return settings.sourced(key).source.origin >= Origin.ENVIRONMENT

    wishes = {
        setting.name: settings.sourced(key).value
        for key, setting in SETTINGS.items()
        if setting.group == "generation" and chosen(key)
    }
    return Question(
        model=model,
        prompt=prompt,
        system=settings.prompt.system if chosen("prompt.system") else None,
        seed=seed,
        wishes=wishes,
    )
