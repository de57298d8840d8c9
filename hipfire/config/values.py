"""Checks of one setting's value, typed (from TOML, from a card) or as text (from a flag, from the environment).

Strict: a TOML string is no number, a number no string. Knows no place that a value came from: the error of `layers`
adds it.
"""

import types
import typing
from collections.abc import Callable
from typing import Any

from hipfire.config.schema import Range, Setting
from hipfire.config.truth import read_bool

AUTO = "auto"
"""How the None of a number is written."""


_SAID_LENGTH = 200


class BadValue(ValueError):
    """The value does not fit the setting; the message reads on after the setting's name: `must be …, not …`."""


def check(setting: Setting, value: object) -> Any:
    """The value as the setting's field holds it. Raises BadValue."""
    kind, optional = _kind(setting)
    if optional and kind is not str and value == AUTO:
        return None
    if typing.get_origin(kind) is tuple:
        return _check_texts(setting, value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if type(value) is not kind:
        raise BadValue(f"must be {_expected(setting)}, not {_said(value)}")
    if not _is_one_of(setting, value):
        raise BadValue(f"must be {_expected(setting)}, not {_said(value)}")
    if setting.within is not None and isinstance(value, int | float) and not setting.within.holds(value):
        raise BadValue(f"must be {_expected(setting)}, not {_said(value)}")
    return value


def _is_one_of(setting: Setting, text: object) -> bool:
    """Whether a text is among those that are named, or has one of the forms, where there are such."""
    if text in setting.choices or not (setting.choices or setting.forms):
        return True
    return isinstance(text, str) and any(form.pattern.fullmatch(text) for form in setting.forms)


def _check_texts(setting: Setting, value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(part, str) for part in value):
        raise BadValue("must be a list of strings" + _unless_secret(setting, value))
    for part in value:
        if not _is_one_of(setting, part):
            raise BadValue(f"must be {_expected(setting)}" + _unless_secret(setting, part))
    return tuple(value)


def _unless_secret(setting: Setting, value: object) -> str:
    return "" if setting.secret else f", not {_said(value)}"


def _said(value: object) -> str:
    """A value for a message of one line, however long it is."""
    if isinstance(value, int) and value.bit_length() > _SAID_LENGTH:
        # Python may refuse to write it out.
        return "a number of so many digits"
    text = repr(value)
    return text if len(text) <= _SAID_LENGTH else f"{text[:_SAID_LENGTH]}…"


def parse(setting: Setting, text: str) -> Any:
    """The value that a text on the command line or in the environment stands for. Raises BadValue.

    Lists are separated by commas; truth is written true or false, 1 or 0, yes or no, on or off.
    """
    kind, optional = _kind(setting)
    if kind is str:
        return check(setting, text)
    if typing.get_origin(kind) is tuple:
        return check(setting, [part.strip() for part in text.split(",") if part.strip()])
    if optional and text.strip().lower() == AUTO:
        return None
    try:
        value = _READERS[kind](text.strip())
    except (KeyError, ValueError):
        raise BadValue(f"must be {_expected(setting)}, not {_said(text)}") from None
    return check(setting, value)


def text_of(setting: Setting, value: object) -> str:
    """How a value is written on the command line: what `parse` reads. A text that is not set is empty."""
    kind, _ = _kind(setting)
    if value is None:
        return "" if kind is str else AUTO
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def shown(setting: Setting, value: object) -> str:
    """The same for whoever looks at it; of a secret only how much there is."""
    if setting.secret and value:
        return f"({len(value)} hidden)" if isinstance(value, tuple) else "(hidden)"
    return text_of(setting, value)


def allowed(setting: Setting) -> str:
    """What may be set, in words: `a whole number from 1 to 65535`."""
    return _expected(setting)


_READERS: dict[type, Callable[[str], object]] = {int: int, float: float, bool: read_bool}


def _kind(setting: Setting) -> tuple[type, bool]:
    """The setting's type without its None, and whether None is allowed."""
    if isinstance(setting.type, types.UnionType):
        (kind,) = (part for part in typing.get_args(setting.type) if part is not types.NoneType)
        return kind, True
    return setting.type, False


_NAMES: dict[type, str] = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def _expected(setting: Setting) -> str:
    kind, optional = _kind(setting)
    forms = [form.what for form in setting.forms]
    if setting.choices:
        return "one of " + ", ".join([*setting.choices, *forms])
    if forms:
        return " or ".join(forms)
    text = _NAMES.get(kind, "a list of strings")
    if setting.within is not None:
        text += _bounds(setting.within)
    return f"{text}, or {AUTO}" if optional and kind is not str else text


def _bounds(within: Range) -> str:
    return f" {within}" if within.above else f" from {within}"
