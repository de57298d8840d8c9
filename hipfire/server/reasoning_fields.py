"""The request fields that ask for reasoning: mode (think or not), effort (how strongly the prompt asks), cap (tokens).

Checks types and ranges, and tells which were given. Knows no model, so not what becomes of them.
"""

import json
import math
from collections.abc import Callable
from typing import Annotated, Any, NewType

import attrs
import cattrs

from hipfire.config.schema import BUDGETS, EFFORTS, Range
from hipfire.server.strict import BadField, expected, structure_text
from hipfire.service.request import ReasoningWishes

MODE_ARGUMENTS = ("enable_thinking", "preserve_thinking")

Effort = NewType("Effort", str)
Budget = NewType("Budget", str)
Cap = Annotated[int, Range(low=0, high=math.inf)]
Thinking = NewType("Thinking", bool)
TemplateArguments = dict[str, object]

_MODES = {True: True, False: False, "on": True, "off": False}
_MODE_TYPES = {"enabled": True, "disabled": False}

# Arguments of a template that are not the client's to choose.
_TAKEN_ARGUMENTS = frozenset({
    "self", "template", "tokenizer", "messages", "tools", "add_generation_prompt", "bos_token", "eos_token",
})  # fmt: skip


@attrs.frozen(kw_only=True)
class Reasoning:
    """The `reasoning` object. Its fields mean the same as the flat ones."""

    effort: Effort | None = None
    max_tokens: Cap | None = None
    budget: Budget | None = None


def wishes(
    *,
    reasoning_effort: Effort | None,
    reasoning: Reasoning | None,
    thinking: Thinking | None,
    max_think_tokens: Cap | None,
    thinking_budget: Budget | None,
    chat_template_kwargs: TemplateArguments | None,
) -> ReasoningWishes:
    """What the fields ask for, each with its path; a cap of 0 asks for none."""
    nested, arguments = reasoning or Reasoning(), chat_template_kwargs or {}
    return ReasoningWishes(
        modes=_given(
            ("thinking", thinking), ("chat_template_kwargs.enable_thinking", arguments.get("enable_thinking"))
        ),
        efforts=_given(("reasoning_effort", reasoning_effort), ("reasoning.effort", nested.effort)),
        caps=_given(("max_think_tokens", max_think_tokens), ("reasoning.max_tokens", nested.max_tokens)),
        budgets=_given(("thinking_budget", thinking_budget), ("reasoning.budget", nested.budget)),
        preserves=_given(("chat_template_kwargs.preserve_thinking", arguments.get("preserve_thinking"))),
    )


def _given(*fields: tuple[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple((path, value) for path, value in fields if value is not None)


def register(converter: cattrs.Converter) -> None:
    """Teach a converter the types of this module."""
    converter.register_structure_hook(Effort, _one_of(EFFORTS))
    converter.register_structure_hook(Budget, _one_of(BUDGETS))
    converter.register_structure_hook(Thinking, _structure_thinking)
    converter.register_structure_hook_func(lambda kind: kind == TemplateArguments, _structure_arguments)


def _one_of(names: tuple[str, ...]) -> Callable[[Any, Any], str]:
    def structure_name(value: Any, _: Any) -> str:
        if structure_text(value) not in names:
            raise BadField(f"must be one of {', '.join(names)}")
        return str(value)

    return structure_name


def _structure_thinking(value: Any, _: Any) -> Thinking:
    """true, false, "on", "off" or {"type": "enabled" | "disabled"}."""
    if type(value) is dict:
        kind = value.get("type")
        if type(kind) is not str or kind not in _MODE_TYPES:
            raise BadField("must be enabled or disabled", below=".type")
        return Thinking(_MODE_TYPES[kind])
    if type(value) not in (bool, str) or value not in _MODES:
        raise BadField('must be true, false, "on", "off" or an object with a type')
    return Thinking(_MODES[value])


def _structure_arguments(value: Any, _: Any) -> TemplateArguments:
    if type(value) is not dict:
        raise expected("an object", value)
    for name in sorted(_TAKEN_ARGUMENTS.intersection(value)):
        raise BadField("is not for a request to set", below=f".{name}")
    for name in MODE_ARGUMENTS:
        if type(value.get(name)) not in (bool, type(None)):
            raise expected("a boolean", value[name], below=f".{name}")
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadField("holds half of a surrogate pair, which is no character") from None
    return value
