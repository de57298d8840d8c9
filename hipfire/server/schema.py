"""The body of `POST /v1/chat/completions`: every field with its type and range, and what it means as a ChatJob.

Knows no model: what depends on one is checked by `service`. A feature that this build lacks is refused, not ignored.
"""

import math
from typing import Annotated, Any, NewType

import attrs
import cattrs

from hipfire.config.schema import Range
from hipfire.errors import InvalidRequest, Unsupported
from hipfire.server import format_fields, reasoning_fields, tool_fields
from hipfire.server.format_fields import ResponseFormat, answer_format_of
from hipfire.server.reasoning_fields import (
    MODE_ARGUMENTS,
    Budget,
    Cap,
    Effort,
    Reasoning,
    TemplateArguments,
    Thinking,
    wishes,
)
from hipfire.server.strict import (
    BadField,
    expected,
    make_converter,
    structure,
    structure_number,
    structure_text,
)
from hipfire.server.tool_fields import CallField, ToolField, choice_of, past_calls
from hipfire.service.request import ChatJob, Message, SamplingWishes

_MAX_STOPS = 4
_MAX_STOP_LENGTH = 64

Content = NewType("Content", str)
Role = NewType("Role", str)
Stops = tuple[str, ...]
LogitBias = dict[int, float]
# JSON that is looked at later, or only for whether it is there.
Anything = NewType("Anything", object)

Count = Annotated[int, Range(low=1, high=math.inf)]
Seed = Annotated[int, Range(low=0, high=2**64 - 1)]
Penalty = Annotated[float, Range(low=-2, high=2)]
RepeatPenalty = Annotated[float, Range(low=0, high=2, above=True)]

_ROLES = {
    "system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool",
    "function": "tool",
}  # fmt: skip


@attrs.frozen(kw_only=True)
class ChatMessage:
    role: Role
    content: Content | None = None
    name: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[CallField, ...] | None = None
    tool_call_id: str | None = None


@attrs.frozen(kw_only=True)
class StreamOptions:
    include_usage: bool | None = None


@attrs.frozen(kw_only=True)
class ChatRequest:
    """A request body. None, for an optional field, is the same as leaving it out."""

    messages: tuple[ChatMessage, ...]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Range(low=0, high=2)] | None = None
    top_p: Annotated[float, Range(low=0, high=1, above=True)] | None = None
    top_k: Annotated[int, Range(low=-1, high=math.inf)] | None = None
    min_p: Annotated[float, Range(low=0, high=1)] | None = None
    repeat_penalty: RepeatPenalty | None = None
    repetition_penalty: RepeatPenalty | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    stop: Stops | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Range(low=0, high=20)] | None = None
    logit_bias: LogitBias | None = None
    n: int | None = None
    tools: tuple[ToolField, ...] | None = None
    tool_choice: Anything | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    chat_template_kwargs: TemplateArguments | None = None
    reasoning_effort: Effort | None = None
    reasoning: Reasoning | None = None
    thinking: Thinking | None = None
    max_think_tokens: Cap | None = None
    thinking_budget: Budget | None = None


def _structure_role(value: Any, _: Any) -> Role:
    role = structure_text(value)
    if role not in _ROLES:
        raise BadField(f"must be one of {', '.join(_ROLES)}")
    return Role(_ROLES[role])


def _structure_content(value: Any, _: Any) -> Content:
    """A string, or the texts of an array of parts in their order."""
    if type(value) is str:
        return Content(structure_text(value))
    if type(value) is not list:
        raise expected("a string or an array of parts", value)
    return Content("".join(_structure_part(part, index) for index, part in enumerate(value)))


def _structure_part(part: Any, index: int) -> str:
    if type(part) is not dict:
        raise expected("an object", part, below=f"[{index}]")
    kind = part.get("type")
    if kind == "image_url":
        raise BadField("images are not supported by this build", below=f"[{index}]", kind=Unsupported)
    if kind != "text":
        raise BadField("must be text or image_url", below=f"[{index}].type")
    return structure_text(part.get("text"), below=f"[{index}].text")


def _structure_stops(value: Any, _: Any) -> Stops:
    if type(value) is str:
        return (_structure_stop(value),)
    if type(value) is not list:
        raise expected("a string or an array of strings", value)
    if len(value) > _MAX_STOPS:
        raise BadField(f"must be at most {_MAX_STOPS} strings, not {len(value)}")
    return tuple(_structure_stop(stop, below=f"[{index}]") for index, stop in enumerate(value))


def _structure_stop(value: Any, *, below: str = "") -> str:
    text = structure_text(value, below=below)
    if not 1 <= len(text) <= _MAX_STOP_LENGTH:
        raise BadField(f"must have 1 to {_MAX_STOP_LENGTH} characters, not {len(text)}", below=below)
    return text


def _structure_bias(value: Any, _: Any) -> LogitBias:
    if type(value) is not dict:
        raise expected("an object of token ids and numbers", value)
    found: LogitBias = {}
    for token, bias in value.items():
        if not (token.isascii() and token.isdigit() and len(token) < len(str(2**63))):
            raise BadField("must have token ids, written as decimal numbers, for its names")
        number = structure_number(bias, below=f".{token}")
        if not -100 <= number <= 100:
            raise BadField("must be at least -100 and at most 100", below=f".{token}")
        found[int(token)] = number
    return found


def _converter() -> cattrs.Converter:
    converter = make_converter()
    converter.register_structure_hook(Role, _structure_role)
    converter.register_structure_hook(Content, _structure_content)
    converter.register_structure_hook(Anything, lambda value, _: value)
    converter.register_structure_hook_func(lambda kind: kind == LogitBias, _structure_bias)
    converter.register_structure_hook_func(lambda kind: kind == Stops, _structure_stops)
    reasoning_fields.register(converter)
    tool_fields.register(converter)
    format_fields.register(converter)
    return converter


_CONVERTER = _converter()


def parse_chat_request(document: object) -> ChatRequest:
    """The request in a decoded JSON body. Raises InvalidRequest; the message names the field's path."""
    request = structure(_CONVERTER, document, ChatRequest)
    if not request.messages:
        raise InvalidRequest("messages: must not be empty", param="messages")
    for index, message in enumerate(request.messages):
        _check_message(message, f"messages[{index}]")
    if request.n not in (None, 1):
        raise InvalidRequest("n: must be 1", param="n")
    if request.top_logprobs and not request.logprobs:
        raise InvalidRequest("top_logprobs: needs logprobs to be true", param="top_logprobs")
    return request


def _check_message(message: ChatMessage, path: str) -> None:
    if message.tool_calls and message.role != "assistant":
        raise InvalidRequest(f"{path}.tool_calls: only an assistant calls tools", param=f"{path}.tool_calls")
    if message.content is None and not message.tool_calls:
        raise InvalidRequest(f"{path}.content: must be a string or an array of parts", param=f"{path}.content")


def to_job(request: ChatRequest) -> ChatJob:
    """The request in its canonical form. Raises InvalidRequest."""
    choice = choice_of(request.tools, request.tool_choice)
    return ChatJob(
        model=request.model or None,
        messages=tuple(
            Message(
                role=message.role,
                content=message.content or "",
                name=message.name,
                reasoning_content=message.reasoning_content,
                calls=past_calls(message.tool_calls),
                call_id=message.tool_call_id if message.role == "tool" else None,
            )
            for message in request.messages
        ),
        max_tokens=request.max_completion_tokens or request.max_tokens,
        stop=request.stop or (),
        sampling=_sampling(request),
        template_arguments={
            name: value
            for name, value in (request.chat_template_kwargs or {}).items()
            # Says the same as the field `thinking`, and is treated alike.
            if name not in MODE_ARGUMENTS
        },
        reasoning=wishes(
            reasoning_effort=request.reasoning_effort,
            reasoning=request.reasoning,
            thinking=request.thinking,
            max_think_tokens=request.max_think_tokens,
            thinking_budget=request.thinking_budget,
            chat_template_kwargs=request.chat_template_kwargs,
        ),
        tools=choice.tools,
        keeps_one_call=choice.is_named or (bool(request.tools) and request.parallel_tool_calls is False),
        must_call=choice.must_call,
        answer_format=answer_format_of(request.response_format),
    )


def _sampling(request: ChatRequest) -> SamplingWishes:
    repeat = request.repeat_penalty
    return SamplingWishes(
        temperature=request.temperature,
        top_p=request.top_p,
        top_k=request.top_k,
        min_p=request.min_p,
        repeat_penalty=request.repetition_penalty if repeat is None else repeat,
        presence_penalty=request.presence_penalty,
        frequency_penalty=request.frequency_penalty,
        seed=request.seed,
        logit_bias=request.logit_bias or {},
        n_logprobs=(request.top_logprobs or 0) if request.logprobs else None,
    )
