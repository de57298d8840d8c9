"""Messages as lines of JSON and back: `{"type": "generate", "id": ...}`, one object a line, strictly typed.

A line that is anything else raises WireError: the two processes are of one build, so there is nothing to be lenient
about. Knows no streams: whoever reads and writes them splits the lines.
"""

import json
import re
from collections.abc import Callable
from typing import Any, get_args, get_origin

import cattrs

from hipfire.errors import WireError
from hipfire.wire.messages import FromEngine, ToEngine

Message = ToEngine | FromEngine

_MESSAGES: dict[str, type[Message]] = {
    re.sub(r"(?<!^)(?=[A-Z])", "_", message.__name__).lower(): message for message in get_args(Message)
}
_TYPES = {message: name for name, message in _MESSAGES.items()}


def encode(message: Message) -> bytes:
    """One line, newline included: ASCII, whatever the message holds."""
    fields = {"type": _TYPES[type(message)], **_CONVERTER.unstructure(message)}
    return _WRITER.encode(fields).encode("ascii") + b"\n"


def decode(line: bytes) -> Message:
    """The message in a line, with or without its newline.

    Raises WireError where the line is no JSON object, its type is unknown, a field is missing, unknown or of another
    type. An integer may stand for a float; nothing else is converted.
    """
    try:
        fields = _READER.decode(line.decode())
    except (ValueError, RecursionError) as error:
        raise WireError(f"not a line of JSON: {error}: {_excerpt(line)}") from None
    if type(fields) is not dict:
        raise WireError(f"not a JSON object: {_excerpt(line)}")
    name = fields.pop("type", None)
    message = _MESSAGES.get(name) if isinstance(name, str) else None
    if message is None:
        raise WireError(f"unknown message type {name!r}: {_excerpt(line)}")
    try:
        return _CONVERTER.structure(fields, message)
    except cattrs.BaseValidationError as error:
        faults = "; ".join(cattrs.transform_error(error))
        raise WireError(f"not a valid {name} message: {faults}: {_excerpt(line)}") from None


def _excerpt(line: bytes) -> str:
    return ascii(line[:80])[1:]


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _exactly(kind: type) -> Callable[[Any, Any], Any]:
    """A structure hook that takes values of one type and, unlike cattrs' own, converts nothing."""

    def structure(value: Any, _: Any) -> Any:
        # An exact test: a bool is an int to isinstance.
        if type(value) is not kind:
            raise TypeError(f"{type(value).__name__} where {kind.__name__} is wanted")
        return value

    return structure


def _structure_float(value: Any, _: Any) -> float:
    if type(value) is not float and type(value) is not int:
        raise TypeError(f"{type(value).__name__} where a number is wanted")
    return float(value)


def _structure_ids(value: Any, _: Any) -> tuple[int, ...]:
    # A prompt may have a hundred thousand of them: one pass in C.
    if type(value) is not list or not set(map(type, value)) <= {int}:
        raise TypeError("a list of integers is wanted")
    return tuple(value)


def _structure_bias(value: Any, _: Any) -> dict[int, float]:
    if type(value) is not dict:
        raise TypeError("an object is wanted")
    return {int(token): _structure_float(bias, float) for token, bias in value.items()}


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _converter() -> cattrs.Converter:
    converter = cattrs.Converter(forbid_extra_keys=True)
    for kind in (int, str, bool):
        converter.register_structure_hook(kind, _exactly(kind))
    converter.register_structure_hook(float, _structure_float)
    converter.register_structure_hook_func(lambda kind: kind == tuple[int, ...], _structure_ids)
    converter.register_structure_hook_func(lambda kind: kind == dict[int, float], _structure_bias)
    # The encoder takes tuples as they are: no copy of a long prompt.
    converter.register_unstructure_hook_func(_is_tuple, lambda value: value)
    return converter


_CONVERTER = _converter()
_WRITER = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False)
_READER = json.JSONDecoder(parse_constant=_refuse_constant)
