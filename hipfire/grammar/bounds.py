"""Bounds on what a schema may be, told by looking at it: cheap, and before anything is made of it.

What passes may still be too much: see `check`. Knows no grammar.
"""

import json
import re
from collections.abc import Iterable, Mapping
from urllib.parse import unquote

from hipfire.errors import InvalidRequest

MAX_NODES = 20_000
"""Values in a schema, itself included."""
MAX_CHARACTERS = 256 << 10
"""Of all names and strings in it together."""
MAX_DEPTH = 128
MAX_LEAST = 100_000
"""What `minItems` and its like may ask for: more fits into no context."""
MAX_PATTERN = 20_000
"""Characters, classes and groups of a pattern, each as often as it is repeated."""
MAX_GROUPS = 64
"""How deep a pattern's groups may be nested."""

_LEAST = frozenset({"minItems", "minLength", "minProperties", "minContains"})
_TOKEN = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|\{(\d*),?(\d*)\}|.", re.DOTALL)


def check_bounds(schema: object, path: str) -> None:
    """Raise InvalidRequest for a schema that is too large, too deep, or asks for too much. Takes milliseconds.

    `path` is where in the request it stands.
    """
    pending: list[tuple[object, int]] = [(schema, 1)]
    references: list[str] = []
    n_nodes = n_characters = 0
    while pending:
        value, depth = pending.pop()
        if isinstance(value, Mapping | list):
            # Before anything is done with each of them.
            n_nodes += len(value)
        elif isinstance(value, str):
            n_characters += len(value)
        if isinstance(value, Mapping) and n_nodes <= MAX_NODES:
            n_characters += sum(map(len, value))
        if n_nodes > MAX_NODES or n_characters > MAX_CHARACTERS:
            raise _too(path, f"is too large: {MAX_NODES} values and {MAX_CHARACTERS} characters are the most")
        if depth > MAX_DEPTH:
            raise _too(path, f"is nested too deep: {MAX_DEPTH} levels are the most")
        if isinstance(value, Mapping):
            for name, item in value.items():
                _check_keyword(name, item, path)
            if isinstance(reference := value.get("$ref"), str):
                references.append(reference)
            pending += [(item, depth + 1) for item in value.values()]
        elif isinstance(value, list):
            pending += [(item, depth + 1) for item in value]
    _check_references(schema, references, path)


def _check_references(schema: object, references: Iterable[str], path: str) -> None:
    """Refuse a reference that leads back to itself by references alone: nothing can be said by it."""
    settled: set[str] = set()
    for reference in references:
        followed: set[str] = set()
        at: object = reference
        while isinstance(at, str) and at not in settled:
            if at in followed:
                raise InvalidRequest(f"{path}: {at[:100]} refers to nothing but itself", param=path)
            followed.add(at)
            target = _target(schema, at)
            at = target.get("$ref") if isinstance(target, Mapping) else None
        settled |= followed


def _target(schema: object, reference: str) -> object:
    """What a reference within the schema stands for (RFC 6901); None for another, or where there is nothing."""
    if not reference.startswith("#"):
        return None
    at = schema
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(at, Mapping):
            at = at.get(name)
        elif isinstance(at, list) and name.isdecimal() and int(name[:9]) < len(at):
            at = at[int(name[:9])]
        else:
            return None
    return at


def _check_keyword(name: str, value: object, path: str) -> None:
    if name in _LEAST and isinstance(value, int | float) and value > MAX_LEAST:
        raise _too(path, f"{name} is {json.dumps(value)[:20]}, and no answer has so much: {MAX_LEAST} is the most")
    if name == "pattern" and isinstance(value, str):
        _check_pattern(value, path)
    elif name == "patternProperties" and isinstance(value, Mapping):
        for pattern in value:
            _check_pattern(pattern, path)


def _check_pattern(pattern: str, path: str) -> None:
    """Count what a pattern comes to with its repetitions written out."""
    # The size of each open group, and that of the last thing in it, which a repetition multiplies.
    sizes, lasts = [0], [0]
    for token in _TOKEN.finditer(pattern):
        text = token.group()
        if text == "(":
            sizes.append(0)
            lasts.append(0)
            if len(sizes) > MAX_GROUPS:
                raise _too(path, f"nests the groups of a pattern too deep: {MAX_GROUPS} levels are the most")
        elif text == ")" and len(sizes) > 1:
            size = sizes.pop()
            lasts.pop()
            sizes[-1] += size
            lasts[-1] = size
        elif token.group(1) or token.group(2):
            size = lasts[-1] * max(_number(token.group(1)), _number(token.group(2)))
            sizes[-1] += size - lasts[-1]
            lasts[-1] = size
        elif text not in "|*+?":
            sizes[-1] += 1
            lasts[-1] = 1
        if sizes[-1] > MAX_PATTERN:
            raise _too(path, f"has a pattern that repeats too much: {MAX_PATTERN} characters are the most")


def _number(digits: str) -> int:
    return int(digits[:9] or 0)


def _too(path: str, what: str) -> InvalidRequest:
    return InvalidRequest(f"{path}: {what}", param=path)
