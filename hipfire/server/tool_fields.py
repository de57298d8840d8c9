"""The request fields about tools: what may be called, what may be chosen, what was called in earlier turns.

Knows no model and no syntax of calls.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, NewType

import attrs
import cattrs

from hipfire.errors import InvalidRequest
from hipfire.server.strict import BadField, expected, structure_text
from hipfire.service.request import Function, PastCall

# What no syntax of calls takes for its own: no white space, brackets or quotes.
_NAME = re.compile(r"[^\s<>\"'{}()\[\]=,]{1,128}")

FunctionName = NewType("FunctionName", str)
FunctionDocument = NewType("FunctionDocument", dict[str, object])
Arguments = NewType("Arguments", dict[str, object])


@attrs.frozen(kw_only=True)
class CalledFunction:
    name: FunctionName
    arguments: Arguments | None = None


@attrs.frozen(kw_only=True)
class CallField:
    """A call in an assistant's message."""

    function: CalledFunction
    id: str | None = None
    type: str | None = None


@attrs.frozen(kw_only=True)
class FunctionField:
    name: FunctionName
    description: str | None = None
    parameters: FunctionDocument | None = None
    strict: bool | None = None


@attrs.frozen(kw_only=True)
class ToolField:
    """An entry of `tools`, checked; what the template gets is the entry as it came."""

    document: FunctionDocument
    function: FunctionField


def register(converter: cattrs.Converter) -> None:
    """Teach a converter the types of this module."""
    converter.register_structure_hook(FunctionName, _structure_name)
    converter.register_structure_hook(Arguments, _structure_arguments)
    converter.register_structure_hook(FunctionDocument, _structure_document)
    converter.register_structure_hook(ToolField, lambda value, _: _structure_tool(converter, value))


@attrs.frozen(kw_only=True)
class ToolChoice:
    """`tools` may be called, and one of `must_call`, if there are any, must be. `is_named`: only that one, once."""

    tools: tuple[Function, ...]
    must_call: tuple[str, ...] = ()
    is_named: bool = False


def choice_of(tools: Sequence[ToolField] | None, choice: object) -> ToolChoice:
    """What may be called and what must be. Raises InvalidRequest."""
    functions = tuple(_function(tool, f"tools[{index}].function.parameters") for index, tool in enumerate(tools or ()))
    names = [function.name for function in functions]
    for index, name in enumerate(names):
        if name in names[:index]:
            path = f"tools[{index}].function.name"
            raise InvalidRequest(f"{path}: there is another tool of this name", param=path)
    if choice in (None, "auto"):
        return ToolChoice(tools=functions)
    if choice == "none":
        return ToolChoice(tools=())
    if choice == "required":
        if not names:
            raise InvalidRequest("tool_choice: there are no tools to call", param="tool_choice")
        return ToolChoice(tools=functions, must_call=tuple(names))
    return ToolChoice(tools=functions, must_call=(_chosen(choice, names),), is_named=True)


def _function(tool: ToolField, path: str) -> Function:
    return Function(
        name=tool.function.name,
        parameters=tool.function.parameters or {},
        document=tool.document,
        is_strict=tool.function.strict is True,
        path=path,
    )


def _chosen(choice: object, names: Sequence[str]) -> str:
    function = choice.get("function") if isinstance(choice, Mapping) else None
    if not isinstance(choice, Mapping) or choice.get("type") != "function" or not isinstance(function, Mapping):
        raise InvalidRequest("tool_choice: must be auto, none, required or a function", param="tool_choice")
    if function.get("name") not in names:
        path = "tool_choice.function.name"
        raise InvalidRequest(f"{path}: there is no tool of this name", param=path)
    return str(function["name"])


def past_calls(calls: Sequence[CallField] | None) -> tuple[PastCall, ...]:
    """The calls of an assistant's message."""
    return tuple(
        PastCall(id=call.id, name=call.function.name, arguments=call.function.arguments or {}) for call in calls or ()
    )


def _structure_name(value: Any, _: Any) -> FunctionName:
    name = structure_text(value)
    if _NAME.fullmatch(name) is None:
        raise BadField("must be a name of 1 to 128 characters without white space, brackets and quotes")
    return FunctionName(name)


def _structure_tool(converter: cattrs.Converter, value: Any) -> ToolField:
    if type(value) is not dict:
        raise expected("an object", value)
    if value.get("type") != "function":
        raise BadField("must be function", below=".type")
    fields = converter.structure(value, _ToolShape)
    return ToolField(document=converter.structure(value, FunctionDocument), function=fields.function)


@attrs.frozen(kw_only=True)
class _ToolShape:
    function: FunctionField


def _structure_document(value: Any, _: Any) -> FunctionDocument:
    """An object of any shape, of which every string can be written as UTF-8."""
    if type(value) is not dict:
        raise expected("an object", value)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise BadField("holds half of a surrogate pair, which is no character") from None
    return FunctionDocument(value)


def _structure_arguments(value: Any, _: Any) -> Arguments:
    """An object, or a string that holds one as JSON; an empty string is an empty one."""
    if type(value) is dict:
        return Arguments(value)
    try:
        arguments = json.loads(structure_text(value) or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadField("must be a string that holds a JSON object") from None
    if type(arguments) is not dict:
        raise BadField("must be a string that holds a JSON object")
    return Arguments(arguments)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")
