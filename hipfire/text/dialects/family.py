"""What is known of a family of models: how to tell it, how it writes, what can be asked of its reasoning.

Knows no family.
"""

import enum
from collections.abc import Mapping
from types import MappingProxyType

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.channels import ChannelMarkup, Channels
from hipfire.text.dialects.syntax import CallSyntax, CannotForce, Tools
from hipfire.text.dialects.tagged import TaggedMarkup, Tags
from hipfire.text.markup import Markup, PlainMarkup

# Messages of reasoning in front of a constrained answer.
_MOST_REASONING = 8

_NO_EFFORTS: Mapping[str, str] = MappingProxyType({})


class Mode(enum.Enum):
    """Whether a family reasons. Those of the last two kinds can be told to, or not to."""

    NEVER = enum.auto()
    ALWAYS = enum.auto()
    DEFAULT_ON = enum.auto()
    DEFAULT_OFF = enum.auto()


class Cap(enum.Enum):
    """What may be said of how long reasoning may get."""

    NONE = enum.auto()
    TOKENS = enum.auto()
    TOKENS_OR_NAME = enum.auto()


@attrs.frozen(kw_only=True)
class Family:
    """A row of `families`.

    A chat template that holds all of `needles` is of this family, if the model is of one of `architectures` where
    there are any. `tags` None: reasoning has no tags; `channels`: answers are messages with headers instead.
    `efforts`: what is understood -> what the template gets. `cap_end` is what the model would write itself to end its
    reasoning, and is written for it when the cap is reached.
    """

    name: str
    needles: tuple[str, ...] = ()
    architectures: tuple[str, ...] = ()
    tags: Tags | None = None
    syntax: CallSyntax | None = None
    channels: Channels | None = None
    mode: Mode = Mode.NEVER
    mode_argument: str = "enable_thinking"
    efforts: Mapping[str, str] = _NO_EFFORTS
    effort_argument: str = "reasoning_effort"
    default_effort: str | None = None
    cap: Cap = Cap.NONE
    cap_end: str = "\n</think>\n\n"

    @property
    def has_calls(self) -> bool:
        return self.channels is not None or self.syntax is not None

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts that matter to it, also where the vocabulary has them as control tokens without a text."""
        if self.channels is not None:
            return self.channels.markers
        tags = (self.tags.opener, self.tags.closer, *self.tags.parts) if self.tags is not None else ()
        return (*tags, *(self.syntax.markers if self.syntax is not None else ()))

    def begins_inside(self, prompt_tail: str) -> bool:
        """Whether what is generated after a prompt that ends so is reasoning from the start."""
        return self.tags is not None and prompt_tail.rstrip().endswith(self.tags.opener)

    def markup(self, *, tools: Tools, begins_inside: bool) -> Markup:
        """Something that takes one output apart."""
        if self.channels is not None:
            return ChannelMarkup(self.channels, tools=tools)
        if self.tags is None and (self.syntax is None or not tools):
            return PlainMarkup()
        return TaggedMarkup(tags=self.tags, begins_inside=begins_inside, syntax=self.syntax, tools=tools)

    def output_rule(
        self, rules: Rules, *, answer: str | None, tools: Tools, most_calls: int, begins_inside: bool, may_reason: bool
    ) -> str:
        """A rule for everything that the model says: its reasoning, and then an `answer` or calls of `tools`.

        `answer` None: calls only. Without tools: an answer only. `begins_inside`: the prompt opens the reasoning.
        Raises CannotForce.
        """
        if self.channels is not None:
            return self._messages_rule(self.channels, rules, answer, tools)
        before, behind = self._ignored_rules(rules)
        options = [] if answer is None else [f"{answer} {behind}"]
        if tools:
            if self.syntax is None:
                raise CannotForce("its calls are not known")
            options.append(self.syntax.calls_rule(rules, tools, most=most_calls))
        said = f"{before} {rules.choice(options)}"
        if self.tags is None:
            return said
        reasoning = f"{rules.until(self.tags.closer)} SPACE?"
        if begins_inside:
            return f"{reasoning} {said}"
        return f"({rules.text(self.tags.opener)} {reasoning})? {said}" if may_reason else said

    def _ignored_rules(self, rules: Rules) -> tuple[str, str]:
        """What may stand in front of an answer, and behind it."""
        ignored = self.tags.ignored if self.tags is not None else ()
        around = [f"({rules.text(tag)})?" for tag in ignored]
        return " ".join(around[::2]), " ".join(around[1::2])

    def _messages_rule(self, channels: Channels, rules: Rules, answer: str | None, tools: Tools) -> str:
        options = [] if answer is None else [channels.answer_rule(rules, answer)]
        options += [channels.call_rule(rules, tool) for tool in tools.values()]
        return f"({channels.reasoning_rule(rules)}){{0,{_MOST_REASONING}}} {rules.choice(options)}"
