"""Reads outputs as a family does, in pieces of some size."""

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from hipfire.text.dialects.family import Family
from hipfire.text.dialects.syntax import Tool
from hipfire.text.markup import MarkupEvent, Reasoning, Text, ToolCall

WEATHER = {"city": {"type": "string"}, "unit": {"type": "string"}, "days": {"type": "integer"}}
SEARCH = {
    "query": {"type": "string"},
    "filters": {"type": "object"},
    "limit": {"type": "integer"},
    "verbose": {"type": "boolean"},
}


def tools(**properties: Mapping[str, object]) -> dict[str, Tool]:
    return {
        name: Tool(name=name, parameters={"type": "object", "properties": schemas})
        for name, schemas in properties.items()
    }


TOOLS = tools(get_weather=WEATHER, search_docs=SEARCH, brave_search={}, python={})


@attrs.frozen(kw_only=True)
class Reading:
    reasoning: str = ""
    text: str = ""
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()


def read(
    family: Family,
    pieces: Iterable[str],
    *,
    declared: Mapping[str, Tool] = TOOLS,
    begins_inside: bool = False,
    truncated: bool = False,
) -> Reading:
    markup = family.markup(tools=declared, begins_inside=begins_inside)
    events: list[MarkupEvent] = [event for piece in pieces for event in markup.feed(piece)]
    events += markup.close(truncated=truncated)
    return Reading(
        reasoning="".join(event.text for event in events if isinstance(event, Reasoning)),
        text="".join(event.text for event in events if isinstance(event, Text)),
        calls=tuple((event.name, event.arguments) for event in events if isinstance(event, ToolCall)),
    )


def cut(text: str, n: int) -> list[str]:
    return [text[start : start + n] for start in range(0, len(text), n)]
