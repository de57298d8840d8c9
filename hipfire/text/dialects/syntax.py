"""What a syntax of tool calls is: how a call begins, and how to read one from a text that is whole.

Knows no family.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.markup import ToolCall


@attrs.frozen(kw_only=True)
class Tool:
    """A function that the request declared. `parameters` is its JSON schema; empty where there is none.

    `is_strict`: where a call is forced, every keyword of the schema must be heeded.
    """

    name: str
    parameters: Mapping[str, object]
    is_strict: bool = False

    def schema_of(self, parameter: str) -> Mapping[str, object] | None:
        """The schema of one parameter; None where it is not declared."""
        schema = self.properties.get(parameter)
        return schema if isinstance(schema, Mapping) else None

    @property
    def properties(self) -> Mapping[str, object]:
        properties = self.parameters.get("properties")
        return properties if isinstance(properties, Mapping) else {}

    @property
    def required(self) -> tuple[str, ...]:
        """The parameters that a call must have."""
        required = self.parameters.get("required")
        return tuple(name for name in required if isinstance(name, str)) if isinstance(required, list) else ()


Tools = Mapping[str, Tool]


@attrs.frozen(kw_only=True)
class Opener:
    """How a call begins: `literal`, then white space, then one of `then`, where there are any.

    `at_start`: only as the first thing of the answer.
    """

    literal: str
    then: tuple[str, ...] = ()
    at_start: bool = False

    def matches(self, text: str) -> bool | None:
        """Whether `text`, which begins with the literal, opens a call; None: that is still open."""
        if not self.then:
            return True
        rest = text[len(self.literal) :].lstrip()
        if any(rest.startswith(then) for then in self.then):
            return True
        return None if any(then.startswith(rest) for then in self.then) else False


@attrs.frozen
class Block:
    """One or several calls. `end` is the place behind them."""

    calls: Sequence[ToolCall]
    end: int


class NotACall(Exception):
    """It begins like a call, but is none: it stays text."""


class Unterminated(Exception):
    """A call that does not end."""


class CannotForce(Exception):
    """A call that cannot be forced in this syntax."""


class CallSyntax(Protocol):
    """One way to write calls."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The tokens that it is written with. In some vocabularies they are control tokens, without a text."""
        ...

    def openers(self, tools: Tools) -> tuple[Opener, ...]:
        """How a call of one of these tools begins."""
        ...

    def read(self, text: str, start: int, tools: Tools) -> Block:
        """The call or calls at `start`, where an opener is. `text` is all there will be.

        Raises NotACall, also for a tool that is not declared, and Unterminated.
        """
        ...

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        """A rule for 1 to `most` calls of these tools, their arguments as their schemas have them.

        Raises CannotForce.
        """
        ...
