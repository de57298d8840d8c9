"""The values of arguments, as the request's schema types them. Knows no syntax of calls."""

import json
import sys
from collections.abc import Iterator, Mapping

from hipfire.text.dialects.syntax import NotACall, Tool, Tools
from hipfire.text.markup import ToolCall

_PYTHON_NAMES = {"True": True, "False": False, "None": None}


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    """The nearest number that JSON can be written with again: 1e999 would become Infinity."""
    return max(min(float(digits), sys.float_info.max), -sys.float_info.max)


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite)


def read_json(text: str, start: int = 0) -> tuple[object, int]:
    """The JSON value at `start`, past white space, and the place behind it. Raises NotACall where there is none."""
    while start < len(text) and text[start].isspace():
        start += 1
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError) as error:
        raise NotACall(f"not JSON: {error}") from None
    return value, end


def declared_call(tools: Tools, name: object, arguments: object) -> ToolCall:
    """The call of a declared tool, its arguments typed. Raises NotACall."""
    tool = tools.get(name) if isinstance(name, str) else None
    if tool is None:
        raise NotACall(f"{name!r} is not declared")
    if isinstance(arguments, str):
        arguments, _ = read_json(arguments or "{}")
    if arguments is None:
        arguments = {}
    if not isinstance(arguments, Mapping):
        raise NotACall("the arguments are no object")
    return ToolCall(tool.name, {key: fitted(value, tool.schema_of(key)) for key, value in arguments.items()})


def call_of_json(tools: Tools, value: object) -> ToolCall:
    """The call in an object with a name and arguments, whatever they are called. Raises NotACall."""
    if not isinstance(value, Mapping):
        raise NotACall("a call is an object")
    inner = value.get("function")
    if isinstance(inner, Mapping):
        value = inner
    name = next((value[key] for key in ("name", "tool_name") if key in value), inner)
    arguments: object = next((value[key] for key in ("arguments", "parameters") if key in value), {})
    return declared_call(tools, name, arguments)


def typed(text: str, tool: Tool, parameter: str) -> object:
    """The value of an argument that was written without its type."""
    schema = tool.schema_of(parameter)
    types = declared_types(schema)
    if "string" in types and not (text == "null" and "null" in types):
        return text
    return _parsed(text)


def fitted(value: object, schema: Mapping[str, object] | None) -> object:
    """A JSON value in the type that the schema wants, where it can be had without loss."""
    types = declared_types(schema)
    if not types:
        return value
    if isinstance(value, str):
        return value if "string" in types else _parsed(value)
    if types == {"string"} and value is not None:
        return json.dumps(value, ensure_ascii=False)
    return value


def _parsed(text: str) -> object:
    """JSON, or what Python calls its constants, or else the text itself."""
    stripped = text.strip()
    if stripped in _PYTHON_NAMES:
        return _PYTHON_NAMES[stripped]
    try:
        value, end = read_json(stripped)
    except NotACall:
        return text
    return value if end == len(stripped) else text


def declared_types(schema: Mapping[str, object] | None) -> frozenset[str]:
    """The JSON types that a schema allows, as far as it says so itself."""
    return frozenset(_named_types(schema)) if schema is not None else frozenset()


def _named_types(schema: Mapping[str, object]) -> Iterator[str]:
    kind = schema.get("type")
    if isinstance(kind, str):
        yield kind
    elif isinstance(kind, list):
        yield from (name for name in kind if isinstance(name, str))
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list):
            for option in options:
                if isinstance(option, Mapping) and isinstance(option.get("type"), str):
                    yield str(option["type"])
    values = schema.get("enum")
    if kind is None and isinstance(values, list) and any(isinstance(value, str) for value in values):
        yield "string"
    if kind is None and isinstance(schema.get("const"), str):
        yield "string"
