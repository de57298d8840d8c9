"""Writes a grammar in llguidance's dialect of Lark.

A rule is written by the name that `rule` gave it, or as an expression of such names, strings, `( … )`, `|` and `?`.
Its syntax is that of https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md.
Knows no family of models, and of tokens only which texts are single control tokens.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

# Forced text would be cut into tokens the way llguidance likes it best; the model knows better how it writes.
_OPTIONS = '%llguidance {"no_forcing": true}'
_TEXT = "TEXT: /(?s:.*)/"
_SPACE = r"SPACE: /[ \n]{1,4}/"

_JSON_STYLE: Mapping[str, object] = {
    # A small model that may write white space without end does.
    "whitespace_pattern": r"\x20|\n[ \t]{0,24}",
    # Without \u, by which half of a surrogate pair could be written: other characters are written as they are.
    "json_allowed_escapes": 'nrbtf\\"',
}


class Rules:
    """The rules of one grammar. `split` cuts a text at the control tokens in it, which come as their ids."""

    def __init__(self, split: Callable[[str], Iterable[str | int]], *, lenient: bool = False) -> None:
        self._split = split
        self._lenient = lenient
        self._lines = [_OPTIONS, _TEXT, _SPACE]
        self._known: dict[str, str] = {}

    def grammar(self, start: str) -> str:
        """The grammar whose whole text `start` is."""
        return "\n".join([*self._lines, f"start: {start}"])

    def rule(self, body: str, *, attributes: str = "") -> str:
        """The name of a rule; of the same rule, where it was written before."""
        line = f"{attributes}: {body}"
        if line not in self._known:
            name = self._known[line] = f"r{len(self._known)}"
            self._lines.append(name + line)
        return self._known[line]

    def text(self, text: str) -> str:
        """Exactly this text; control tokens in it as themselves."""
        parts = [f"<[{part}]>" if isinstance(part, int) else json.dumps(part) for part in self._split(text)]
        return " ".join(parts) or '""'

    def is_control(self, text: str) -> bool:
        """Whether a text is one control token."""
        parts = list(self._split(text))
        return len(parts) == 1 and isinstance(parts[0], int)

    def until(self, closer: str) -> str:
        """Any text, and the first `closer` that comes."""
        parts = list(self._split(closer))
        if parts and isinstance(parts[0], int):
            # Text never holds a control token, but it could spell it out, which looks alike to whoever reads it.
            return f"{self._without(closer)} {self.text(closer)}"
        return self.rule(f"TEXT {json.dumps(closer)}", attributes="[lazy]")

    def _without(self, text: str) -> str:
        """A terminal for any text that does not hold this one."""
        spelled = re.escape(text).replace("/", r"\/")
        line = f": TEXT & ~/(?s:.*){spelled}(?s:.*)/"
        if line not in self._known:
            name = self._known[line] = f"WITHOUT{len(self._known)}"
            self._lines.append(name + line)
        return self._known[line]

    def json(self, schema: Mapping[str, object], *, strict: bool) -> str:
        """JSON that a schema allows. One that is not strict may hold keywords that are not heeded, if this is lenient.

        A schema that has options for the library in it does not reach it with them: they could turn JSON into
        something else.
        """
        style = {**_JSON_STYLE, "lenient": self._lenient and not strict}
        return self.rule(f"%json {json.dumps({**schema, 'x-guidance': style})}")

    def choice(self, options: Iterable[str]) -> str:
        """One of some expressions."""
        return self.rule(" | ".join(options))

    def repeated(self, item: str, *, between: str = "", most: int) -> str:
        """An expression, 1 to `most` times."""
        if most == 1:
            return item
        return self.rule(f"{item} ({between} {item}){{0,{most - 1}}}")

    def listed(self, items: Sequence[tuple[str, bool]], *, between: str) -> str:
        """Expressions in their order with `between` between them; those that are not needed may be left out."""
        # What may follow, from the end: at the beginning of the list, and behind an item.
        first = behind = '""'
        for item, needed in reversed(items):
            with_first, with_behind = f"{item} {behind}", f"{between} {item} {behind}"
            first = self.rule(with_first if needed else f"{with_first} | {first}")
            behind = self.rule(with_behind if needed else f"{with_behind} | {behind}")
        return first
