"""The prompt of a conversation, also where the model's template cannot take the conversation as it is.

Knows no tokens beyond the list of them.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import attrs

from hipfire.errors import TemplateError
from hipfire.service.model_text import ModelText
from hipfire.service.request import Message
from hipfire.text.prompt import encode_chat

_BETWEEN = "\n\n"


def encode_conversation(
    text: ModelText, messages: Sequence[Message], *, system: str | None, arguments: Mapping[str, Any]
) -> list[int]:
    """The prompt's token ids. `system` goes first where the client sent no system message of its own.

    A system message later on, two turns in a row of one role, or a system message at all may be more than a template
    takes: it fails, or leaves something out. Then what it cannot take is merged into what it can. An assistant's
    message at the end is the beginning of the answer.
    Raises TemplateError when it takes no reading of the conversation.
    """
    if system and not any(message.role == "system" for message in messages):
        messages = [Message(role="system", content=system), *messages]
    begun = ""
    if messages[-1].role == "assistant":
        *messages, last = messages
        begun = last.content
    turns = _acceptable(text, messages, arguments)
    return encode_chat(text.template, text.tokenizer, turns, **arguments) + text.tokenizer.encode(begun)


def _acceptable(text: ModelText, messages: Sequence[Message], arguments: Mapping[str, Any]) -> list[dict[str, object]]:
    """The first reading of the conversation that the template takes, as it takes it."""
    failure: TemplateError | None = None
    incomplete: list[dict[str, object]] | None = None
    for reading in _readings(messages):
        turns = [message.for_template() for message in reading]
        try:
            prompt = text.template.render(turns, **arguments)
        except TemplateError as error:
            failure = failure or error
            continue
        if _is_complete(prompt, messages):
            return turns
        incomplete = incomplete or turns
    if incomplete is None:
        raise failure or TemplateError("the chat template refused the conversation")
    # The template rewrites what it is given, so nothing can be told from looking.
    return incomplete


def _is_complete(prompt: str, messages: Sequence[Message]) -> bool:
    """Whether everything that system and user said is in the prompt. Templates trim, and may leave out reasoning."""
    return all(message.content.strip() in prompt for message in messages if message.role != "assistant")


def _readings(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The conversation as it is, then in simpler and simpler forms."""
    yield list(messages)
    alternating = _alternating(messages)
    yield alternating
    if not alternating:
        return
    if alternating[0].role == "system" and len(alternating) > 1 and alternating[1].role == "user":
        system, user, *rest = alternating
        yield [_joined([system, user], role="user"), *rest]
    elif alternating[0].role == "system":
        yield [attrs.evolve(alternating[0], role="user"), *alternating[1:]]


def _alternating(messages: Sequence[Message]) -> list[Message]:
    """At most one system message, the first; then user and assistant in turn."""
    n_leading = next((index for index, message in enumerate(messages) if message.role != "system"), len(messages))
    leading = [_joined(messages[:n_leading], role="system")] if n_leading else []
    turns = [
        attrs.evolve(message, role="user") if message.role == "system" else message for message in messages[n_leading:]
    ]
    return leading + [_joined(list(group), role=role) for role, group in groupby(turns, key=lambda turn: turn.role)]


def _joined(messages: Sequence[Message], *, role: str) -> Message:
    return attrs.evolve(messages[-1], role=role, content=_BETWEEN.join(message.content for message in messages))
