"""Turns JSON values into frozen classes without converting anything: "5" is no number and true no integer.

The first fault is raised as InvalidRequest with the path of the field, `messages[2].content`. Knows no endpoint.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, get_args, get_origin

import attrs
import cattrs
from cattrs import IterableValidationNote
from cattrs.cols import homogenous_tuple_structure_factory
from cattrs.gen import make_dict_structure_fn

from hipfire.config.schema import Range
from hipfire.errors import InvalidRequest

T = TypeVar("T")

# A client may send an integer of thousands of digits.
_SHOWN_DIGITS = 32

_JSON_NAMES = {
    type(None): "null", bool: "a boolean", int: "an integer", float: "a number", str: "a string", list: "an array",
    dict: "an object",
}  # fmt: skip


class BadField(Exception):
    """A value that its field does not take. `below` is the rest of the path where the fault is deeper inside.

    `kind` is the error that the request ends in.
    """

    def __init__(self, message: str, *, below: str = "", kind: type[InvalidRequest] = InvalidRequest) -> None:
        super().__init__(message)
        self.message = message
        self.below = below
        self.kind = kind


def expected(what: str, value: object, *, below: str = "") -> BadField:
    """The fault of a value of the wrong type."""
    return BadField(f"must be {what}, not {_JSON_NAMES[type(value)]}", below=below)


def structure(converter: cattrs.Converter, value: object, kind: type[T]) -> T:
    """The value as a `kind`. Raises InvalidRequest or one of its subclasses."""
    try:
        return converter.structure(value, kind)
    except (cattrs.BaseValidationError, BadField) as error:
        raise _first_fault(error) from None


def _first_fault(error: Exception) -> InvalidRequest:
    path = ""
    while isinstance(error, cattrs.ClassValidationError | cattrs.IterableValidationError):
        error, note = error.group_exceptions()[0][0]
        path += f"[{note.index}]" if isinstance(note, IterableValidationNote) else f".{note.name}"
    if isinstance(error, KeyError):
        error = BadField("is required")
    if not isinstance(error, BadField):
        raise error
    path = (path + error.below).removeprefix(".")
    return error.kind(f"{path or 'the body'}: {error.message}", param=path or None)


def make_converter() -> cattrs.Converter:
    """A converter that takes JSON's own types only. Fields that a class does not have are ignored."""
    converter = cattrs.Converter()
    converter.register_structure_hook(bool, _exactly(bool, "a boolean"))
    converter.register_structure_hook(int, _exactly(int, "an integer"))
    converter.register_structure_hook(float, lambda value, _: structure_number(value))
    converter.register_structure_hook(str, lambda value, _: structure_text(value))
    converter.register_structure_hook_factory(attrs.has, _object_hook)
    converter.register_structure_hook_factory(_is_tuple, _array_hook)
    converter.register_structure_hook_factory(_is_annotated, _range_hook)
    return converter


def structure_text(value: object, *, below: str = "") -> str:
    """A string that can be written as UTF-8: JSON can spell half a surrogate pair, which is no character."""
    if type(value) is not str:
        raise expected("a string", value, below=below)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise BadField("holds half of a surrogate pair, which is no character", below=below) from None
    return value


def structure_number(value: object, *, below: str = "") -> float:
    """A finite number, as a float."""
    if type(value) is not float and type(value) is not int:
        raise expected("a number", value, below=below)
    try:
        return float(value)
    except OverflowError:
        raise BadField("is out of range", below=below) from None


def _exactly(kind: type, what: str) -> Callable[[Any, Any], Any]:
    def structure_exactly(value: Any, _: Any) -> Any:
        # An exact test: a bool is an int to isinstance.
        if type(value) is not kind:
            raise expected(what, value)
        return value

    return structure_exactly


def _object_hook(kind: Any, converter: Any) -> Callable[[Any, Any], Any]:
    inner = make_dict_structure_fn(kind, converter)

    def structure_object(value: Any, target: Any) -> Any:
        if type(value) is not dict:
            raise expected("an object", value)
        return inner(value, target)

    return structure_object


def _is_tuple(kind: Any) -> bool:
    return get_origin(kind) is tuple


def _array_hook(kind: Any, converter: Any) -> Callable[[Any, Any], Any]:
    inner = homogenous_tuple_structure_factory(kind, converter)

    def structure_array(value: Any, target: Any) -> Any:
        if type(value) is not list:
            raise expected("an array", value)
        return inner(value, target)

    return structure_array


def _is_annotated(kind: Any) -> bool:
    return get_origin(kind) is Annotated


def _range_hook(kind: Any, converter: Any) -> Callable[[Any, Any], Any]:
    """The hook of `Annotated[int, Range(...)]`."""
    base, within = get_args(kind)
    inner = converter.get_structure_hook(base)

    def structure_within(value: Any, _: Any) -> Any:
        number = inner(value, base)
        if not within.holds(number):
            raise BadField(f"must be {_bounds(within)}, not {str(value)[:_SHOWN_DIGITS]}")
        return number

    return structure_within


def _bounds(within: Range) -> str:
    low = f"above {within.low}" if within.above else f"at least {within.low}"
    return low if math.isinf(within.high) else f"{low} and at most {within.high}"
