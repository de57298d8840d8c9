"""The request fields that ask for reasoning: mode (think or not), effort (how strongly the prompt asks), cap (tokens).

Checks types and ranges, and tells which were used. Knows no model, so not what becomes of them.
"""

import json
import math
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NewType

import attrs
import cattrs

from hipfire.config.schema import Range
from hipfire.server.strict import BadField, expected, structure_text

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
BUDGETS = ("low", "med", "high", "xhigh", "max", "uncapped")
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


def used(
    *,
    reasoning_effort: Effort | None,
    reasoning: Reasoning | None,
    thinking: Thinking | None,
    max_think_tokens: Cap | None,
    thinking_budget: Budget | None,
    chat_template_kwargs: TemplateArguments | None,
) -> Iterator[str]:
    """The paths of the fields that ask for something; a cap of 0 does not."""
    if reasoning_effort is not None:
        yield "reasoning_effort"
    if reasoning is not None:
        for name, value in attrs.asdict(reasoning).items():
            if value:
                yield f"reasoning.{name}"
    if thinking is not None:
        yield "thinking"
    if max_think_tokens:
        yield "max_think_tokens"
    if thinking_budget is not None:
        yield "thinking_budget"
    for name in MODE_ARGUMENTS:
        if (chat_template_kwargs or {}).get(name) is not None:
            yield f"chat_template_kwargs.{name}"


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
