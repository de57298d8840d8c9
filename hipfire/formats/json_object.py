"""JSON that came with a model: parsed within limits, read with types. Knows no key."""

import json
import reprlib
from collections.abc import Mapping
from pathlib import Path

import attrs

from hipfire.errors import CorruptFile
from hipfire.formats.mapped_file import DAMAGED, MappedFile

# Settings count things of which there are not so many, and measure things that are not so large.
_MOST = 1 << 31
_LARGEST = 1e30


def parse_object(text: bytes, where: str) -> dict[str, object]:
    """Parse an object without duplicate keys. Raises CorruptFile; `where` names the text in the message."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        # ValueError: not JSON, not UTF-8, a number of thousands of digits, or a key that comes twice.
        raise CorruptFile(f"{where} cannot be read as JSON: {error}", hint=DAMAGED) from error
    if not isinstance(value, dict):
        raise CorruptFile(f"{where} is no JSON object", hint=DAMAGED)
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key comes twice")
    return values


@attrs.frozen(kw_only=True)
class JsonObject:
    """An object whose values are read by type. A null is as good as no value.

    Every reader raises CorruptFile when the value is missing without a default, or not of the type.
    """

    path: Path
    values: Mapping[str, object]

    @classmethod
    def from_file(cls, path: Path, *, most_nbytes: int) -> "JsonObject":
        """Read a file. Raises CorruptFile also when it is longer than any such file should be."""
        file = MappedFile(path)
        try:
            if file.nbytes > most_nbytes:
                raise CorruptFile(f"{path} is {file.nbytes} bytes long, more than the {most_nbytes} allowed")
            return cls(path=path, values=parse_object(file.data[:], str(path)))
        finally:
            file.close()

    def get(self, key: str) -> object:
        return self.values.get(key)

    def integer(self, key: str, default: int | None = None, *, most: int = _MOST) -> int:
        """An integer of 1..most."""
        value = self._value(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= most:
            raise self._wrong(key, f"an integer of 1 to {most}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._value(key, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _LARGEST:
            raise self._wrong(key, "a positive number")
        return float(value)

    def text(self, key: str, default: str | None = None) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def flag(self, key: str, default: bool) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false")
        return value

    def texts(self, key: str) -> list[str]:
        value = self._value(key, None)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self._wrong(key, "a list of strings")
        return value

    def child(self, key: str) -> "JsonObject":
        """An object in this one; an absent one is empty."""
        value = self.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(key, "an object")
        return JsonObject(path=self.path, values=value)

    def _value(self, key: str, default: object) -> object:
        value = self.get(key)
        return default if value is None else value

    def _wrong(self, key: str, wanted: str) -> CorruptFile:
        if self.get(key) is None:
            return CorruptFile(f"{self.path} has no {key!r}", hint="download the whole model again")
        return CorruptFile(f"{self.path}: {key!r} is {reprlib.repr(self.get(key))}, not {wanted}", hint=DAMAGED)
