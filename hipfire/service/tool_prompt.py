"""Tools for models whose chat template has none: told in a system message, called and answered in text.

The form is that of Hermes (see `text.dialects.hermes_json`), which small models have seen most of.
"""

import json
from collections.abc import Sequence

import attrs

from hipfire.service.request import Function, Message

_INTRODUCTION = """\
You may call one or more of these functions. They are described by JSON schemas within <tools></tools>:
<tools>
{functions}
</tools>
To call a function, answer with a JSON object that has its name and arguments, within <tool_call></tool_call>:
<tool_call>
{{"name": <function-name>, "arguments": <arguments-object>}}
</tool_call>"""


def with_tools_told(messages: Sequence[Message], tools: Sequence[Function]) -> list[Message]:
    """The conversation with a system message that tells of the tools, behind what it says already."""
    functions = "\n".join(json.dumps(tool.document, ensure_ascii=False) for tool in tools)
    told = _INTRODUCTION.format(functions=functions)
    if messages and messages[0].role == "system":
        first = attrs.evolve(messages[0], content=f"{messages[0].content}\n\n{told}".lstrip())
        return [first, *messages[1:]]
    return [Message(role="system", content=told), *messages]


def with_calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """The conversation without roles and fields of tools: a result is what the user says next."""
    return [_as_text(message) for message in messages]


def _as_text(message: Message) -> Message:
    if message.role == "tool":
        return Message(role="user", content=f"<tool_response>\n{message.content}\n</tool_response>")
    if not message.calls:
        return message
    calls = (json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in message.calls)
    texts = [message.content, *(f"<tool_call>\n{call}\n</tool_call>" for call in calls)]
    return attrs.evolve(message, content="\n".join(text for text in texts if text), calls=())
