"""The arguments of calls that are forced, as rules of a grammar. Knows no syntax of calls beyond what it is told."""

import json
import re
from collections.abc import Callable, Mapping

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.syntax import CannotForce, Tool
from hipfire.text.dialects.values import declared_types

_DEFINITIONS = ("$defs", "definitions")
# What a schema may say of a text that is written as it is, and that is kept to or says nothing of its value.
_KEPT = frozenset({"type", "enum", "const", "title", "description", "default", "examples", "anyOf", "oneOf"})


def arguments_rule(rules: Rules, tool: Tool) -> str:
    """All arguments as one object of JSON."""
    return rules.json({**tool.parameters, "type": "object"}, strict=tool.is_strict)


def parameter_rules(
    tool: Tool, write: Callable[[str, Mapping[str, object]], str], *, name: re.Pattern[str]
) -> list[tuple[str, bool]]:
    """A rule for each parameter, as `write` makes it of name and schema, and whether a call must have it.

    Raises CannotForce where a name does not match `name`, since it could not be read again, or where the schema says
    more than which parameters there are.
    """
    more = {"anyOf", "oneOf", "allOf", "$ref", "not", "if", "patternProperties"} & tool.parameters.keys()
    if more:
        raise CannotForce(f"the parameters of {tool.name} are given by {min(more)}")
    schemas: dict[str, object] = dict(tool.properties)
    for needed in tool.required:
        schemas.setdefault(needed, {})
    found = []
    for parameter, schema in schemas.items():
        if name.fullmatch(parameter) is None:
            raise CannotForce(f"the parameter {parameter!r} of {tool.name} has such a name")
        found.append((write(parameter, schema if isinstance(schema, Mapping) else {}), parameter in tool.required))
    return found


def json_value(rules: Rules, schema: Mapping[str, object], tool: Tool) -> str:
    """A value of a parameter as JSON. Raises CannotForce for a schema that refers to the whole of the tool's."""
    for reference in re.findall(r'"\$(?:dynamicR|r)ef": "([^"]*)"', json.dumps(schema)):
        if not reference.startswith(tuple(f"#/{name}/" for name in _DEFINITIONS)):
            raise CannotForce(f"the parameters of {tool.name} refer to {reference}")
    definitions = {name: tool.parameters[name] for name in _DEFINITIONS if name in tool.parameters}
    return rules.json({**definitions, **schema}, strict=tool.is_strict)


def raw_value(rules: Rules, schema: Mapping[str, object], tool: Tool, *, closer: str) -> str:
    """A value that is a text written as it is, and the `closer` behind it, which it does not hold.

    Of what a schema may say, only which texts there are is kept to. Raises CannotForce where that is not enough.
    """
    unkept = schema.keys() - _KEPT
    if unkept and tool.is_strict:
        raise CannotForce(f"{min(unkept)} of {tool.name} is about a text that is written as it is")
    texts = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(texts, list):
        return rules.until(closer)
    written = [text if isinstance(text, str) else json.dumps(text) for text in texts]
    if any(closer.strip() in text for text in written):
        raise CannotForce(f"a value of {tool.name} holds the tag that ends it")
    return f"{rules.choice(map(rules.text, written))} {rules.text(closer)}"


def is_text(schema: Mapping[str, object]) -> bool:
    """Whether `values.typed` takes what is written for a text."""
    return "string" in declared_types(schema)
