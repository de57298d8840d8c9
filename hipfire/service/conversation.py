"""The prompt of a conversation, also where the model's template cannot take the conversation as it is.

Knows no tokens beyond the list of them.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import attrs

from hipfire.errors import TemplateError
from hipfire.service.model_text import ModelText
from hipfire.service.request import Function, Message
from hipfire.service.tool_prompt import with_calls_as_text, with_tools_told
from hipfire.text.prompt import encode_chat, prompt_tail

_BETWEEN = "\n\n"
_GAPS = re.compile(r"\n{3,}")


def with_single_gaps(message: Message) -> Message:
    """The message with one empty line wherever there were more."""
    return attrs.evolve(message, content=_GAPS.sub(_BETWEEN, message.content))


def encode_conversation(
    text: ModelText,
    messages: Sequence[Message],
    *,
    system: str | None,
    arguments: Mapping[str, Any],
    tools: Sequence[Function] = (),
) -> list[int]:
    """The prompt's token ids. `system` goes first where the client sent no system message of its own.

    A system message later on, two turns in a row of one role, or a system message at all may be more than a template
    takes: it fails, or leaves something out. Then what it cannot take is merged into what it can. An assistant's
    message at the end is the beginning of the answer, unless it calls tools.
    Raises TemplateError when it takes no reading of the conversation.
    """
    if system and not any(message.role == "system" for message in messages):
        messages = [Message(role="system", content=system), *messages]
    last = None
    if messages[-1].role == "assistant" and not messages[-1].calls:
        *messages, last = messages
    if text.tells_tools:
        messages = with_calls_as_text(with_tools_told(messages, tools) if tools else messages)
    elif tools:
        arguments = {**arguments, "tools": [tool.document for tool in tools]}
    turns = _acceptable(text, _named_results(messages), arguments)
    ids = encode_chat(text.template, text.tokenizer, turns, **arguments)
    return ids if last is None else [*ids, *_begun(text, ids, last)]


def _begun(text: ModelText, ids: Sequence[int], message: Message) -> list[int]:
    """The tokens of an answer that is to go on. Its reasoning, if the prompt opens it, is over."""
    encode, family = text.tokenizer.encode, text.family
    if not message.content or not family.begins_inside(prompt_tail(ids, text.tokenizer, text.shown)):
        return encode(message.content)
    return [
        *encode(message.reasoning_content or ""),
        *encode(family.cap_end, parse_control=True),
        *encode(message.content),
    ]


def _named_results(messages: Sequence[Message]) -> list[Message]:
    """The messages, where a tool's result has the tool's name, which some templates want."""
    names = {call.id: call.name for message in messages for call in message.calls if call.id is not None}
    return [
        attrs.evolve(message, name=names[message.call_id])
        if message.role == "tool" and message.name is None and message.call_id in names
        else message
        for message in messages
    ]


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
    """Whether everything that was said to the model is in the prompt. Templates trim, and may leave out reasoning."""
    return all(
        message.content.strip() in prompt
        # Some templates write a tool's result as a string of JSON.
        or (message.role == "tool" and json.dumps(message.content.strip(), ensure_ascii=False)[1:-1] in prompt)
        for message in messages
        if message.role != "assistant"
    )


def _readings(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """The conversation as it is, then in simpler and simpler forms."""
    yield list(messages)
    if any(message.calls or message.role == "tool" for message in messages):
        forms = [_with_short_ids(messages), _with_single_calls(messages)]
        yield from forms
        yield from map(_without_system, [messages, *forms])
        messages = with_calls_as_text(messages)
        yield list(messages)
    alternating = _alternating(messages)
    yield alternating
    if alternating and alternating[0].role == "system":
        yield _without_system(alternating)


def _without_system(messages: Sequence[Message]) -> list[Message]:
    """With the first message, if it is the system's, as what the user says first."""
    if not messages or messages[0].role != "system":
        return list(messages)
    if len(messages) > 1 and messages[1].role == "user":
        system, user, *rest = messages
        return [_joined([system, user], role="user"), *rest]
    return [attrs.evolve(messages[0], role="user"), *messages[1:]]


def _with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """With ids of nine digits, which is all that Mistral's templates take."""
    ids: dict[str | None, str] = {}
    for message in messages:
        for id_ in (*(call.id for call in message.calls), message.call_id):
            ids.setdefault(id_, f"{len(ids):09d}")
    return [
        attrs.evolve(
            message,
            calls=tuple(attrs.evolve(call, id=ids[call.id]) for call in message.calls),
            call_id=ids[message.call_id] if message.role == "tool" else None,
        )
        for message in messages
    ]


def _with_single_calls(messages: Sequence[Message]) -> list[Message]:
    """With one call a turn, each before its result, for templates that take no more."""
    results = {message.call_id: message for message in messages if message.role == "tool"}
    single: list[Message] = []
    told: set[str | None] = set()
    for message in messages:
        if len(message.calls) > 1:
            for index, call in enumerate(message.calls):
                content = message.content if index == 0 else ""
                single.append(attrs.evolve(message, content=content, calls=(call,)))
                if call.id in results:
                    single.append(results[call.id])
                    told.add(call.id)
        elif message.role != "tool" or message.call_id not in told:
            single.append(message)
    return single


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
