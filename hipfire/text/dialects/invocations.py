"""Calls as DeepSeek V3.2 and V4 (DSML) and MiniMax M2 write them, a block of tags around values written as they are.

    <｜DSML｜tool_calls>
    <｜DSML｜invoke name="NAME">
    <｜DSML｜parameter name="KEY" string="true">VALUE</｜DSML｜parameter>
    </｜DSML｜invoke>
    </｜DSML｜tool_calls>

V3.2 says `function_calls`. MiniMax has `<minimax:tool_call>` around `<invoke name="NAME">`, with no mark in the tags.
A value is text or JSON, as its tag says; where it says nothing, as the tool's schema does.
"""

import re
from collections.abc import Mapping

import attrs

from hipfire.grammar.rules import Rules
from hipfire.text.dialects.forced import is_text, json_value, parameter_rules, raw_value
from hipfire.text.dialects.syntax import Block, NotACall, Opener, Tool, Tools, Unterminated
from hipfire.text.dialects.unescaped import CallTags
from hipfire.text.dialects.values import read_json, typed
from hipfire.text.markup import ToolCall

_FORCED_NAME = re.compile(r'[^"\n]+')
_NEWLINE, _QUOTE = "\n", '"'


@attrs.frozen(kw_only=True)
class Invocations:
    """`blocks` are the names of the tag around all calls, `mark` begins the names of the tags within it.

    `tells_types`: tags of values say whether it is text.
    """

    blocks: tuple[str, ...]
    mark: str = ""
    tells_types: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        return (self.mark,) if self.mark else tuple(f"<{end}{block}>" for block in self.blocks for end in ("", "/"))

    def openers(self, tools: Tools) -> tuple[Opener, ...]:  # noqa: ARG002
        return tuple(Opener(literal=f"<{block}>", then=(f"<{self.mark}invoke",)) for block in self.blocks)

    def read(self, text: str, start: int, tools: Tools) -> Block:
        block = next((block for block in self.blocks if text.startswith(f"<{block}>", start)), None)
        if block is None:
            raise NotACall("no block of calls")
        closer = f"</{block}>"
        if closer not in text[start:]:
            raise Unterminated
        tags, calls = _tags(self.mark, closer), list[ToolCall]()
        place = start + len(f"<{block}>")
        while tags.head.match(text, place):
            call, place = tags.read(text, place, tools, _value)
            calls.append(call)
        stripped = text[place:].lstrip()
        if not calls or not stripped.startswith(closer):
            raise NotACall("something else than a call")
        return Block(calls, len(text) - len(stripped) + len(closer))

    def calls_rule(self, rules: Rules, tools: Tools, *, most: int) -> str:
        calls = rules.choice(
            invocation_rule(rules, tool, mark=self.mark, tells_types=self.tells_types) for tool in tools.values()
        )
        items = rules.repeated(calls, between=rules.text(_NEWLINE), most=most)
        block = self.blocks[0]
        return f"{rules.text(f'<{block}>{_NEWLINE}')} {items} {rules.text(f'{_NEWLINE}</{block}>')}"


def invocation_rule(rules: Rules, tool: Tool, *, mark: str, tells_types: bool = False) -> str:
    """A rule for one call between its tags. Raises CannotForce."""
    closer = f"</{mark}parameter>"

    def written(name: str, schema: Mapping[str, object]) -> str:
        told = f' string="{"true" if is_text(schema) else "false"}"' if tells_types else ""
        if is_text(schema):
            value = raw_value(rules, schema, tool, closer=closer)
        else:
            value = f"{json_value(rules, schema, tool)} {rules.text(closer)}"
        return f"{rules.text(f'<{mark}parameter name={_QUOTE}{name}{_QUOTE}{told}>')} {value} {rules.text(_NEWLINE)}"

    head, tail = rules.text(f'<{mark}invoke name="{tool.name}">\n'), rules.text(f"</{mark}invoke>")
    return f"{head} {rules.listed(parameter_rules(tool, written, name=_FORCED_NAME), between='')} {tail}"


def _tags(mark: str, closer: str) -> CallTags:
    return CallTags(
        head=re.compile(rf'\s*<{mark}invoke name="([^"]+)">'),
        # Behind an invocation comes the next one or the end of the block.
        tail=re.compile(rf"\s*</{mark}invoke>(?=\s*(?:<{mark}invoke name=|{closer}))"),
        parameter=re.compile(rf'\s*<{mark}parameter name="([^"]+)"(?: string="(true|false)")?>'),
        value_end=re.compile(rf"</{mark}parameter>"),
    )


def _value(head: re.Match[str], raw: str, tool: Tool) -> object:
    if head.group(2) is None:
        return typed(raw, tool, head.group(1))
    return raw if head.group(2) == "true" else read_json(raw)[0]
