"""How a model of each family writes a call of `note`, and how it writes its reasoning, for tests of markup."""

import json
from collections.abc import Callable

from markup_reading import tools

from hipfire.text.dialects.families import FAMILIES
from hipfire.text.dialects.family import Family, Mode

NOTE = tools(note={"text": {"type": "string"}, "n": {"type": "integer"}})

Writer = Callable[[str], str]
"""The call whose parameter `text` is this."""


def _qwen(text: str) -> str:
    return f"<tool_call>\n<function=note>\n<parameter=text>\n{text}\n</parameter>\n</function>\n</tool_call>"


def _as_json(text: str, *, name: str = "name", arguments: str = "arguments") -> str:
    return json.dumps({name: "note", arguments: {"text": text}}, ensure_ascii=False)


def _hermes(text: str) -> str:
    return f"<tool_call>\n{_as_json(text)}\n</tool_call>"


def _mistral(text: str) -> str:
    return f"[TOOL_CALLS]note[ARGS]{json.dumps({'text': text})}"


def _lfm2(text: str) -> str:
    return f"<|tool_call_start|>[note(text={json.dumps(text, ensure_ascii=False)})]<|tool_call_end|>"


def _deepseek_r1(text: str) -> str:
    return (
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>note\n"
        f"```json\n{json.dumps({'text': text})}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def _deepseek_v31(text: str) -> str:
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>note<｜tool▁sep｜>{json.dumps({'text': text})}"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def _dsml(text: str) -> str:
    return (
        '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="note">\n<｜DSML｜parameter name="text" string="true">'
        f"{text}</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>"
    )


def _minimax(text: str) -> str:
    return (
        f'<minimax:tool_call>\n<invoke name="note">\n<parameter name="text">{text}</parameter>\n</invoke>\n'
        "</minimax:tool_call>"
    )


def _cohere(text: str) -> str:
    return f"<|START_ACTION|>[\n    {_as_json(text, name='tool_name', arguments='parameters')}\n]<|END_ACTION|>"


def _gemma4(text: str) -> str:
    return f'<|tool_call>call:note{{text:<|"|>{text}<|"|>}}<tool_call|>'


def _gpt_oss(text: str) -> str:
    return f"<|channel|>commentary to=functions.note<|message|>{json.dumps({'text': text})}"


def _glimmer(text: str) -> str:
    return (
        ' to=note<|message|><atem:function_calls>\n<atem:invoke name="note">\n'
        f'<atem:parameter name="text">{text}</atem:parameter>\n</atem:invoke>\n</atem:function_calls>'
    )


def _granite(text: str) -> str:
    return f"<|tool_call|>[{_as_json(text)}]"


def _llama3(text: str) -> str:
    return _as_json(text, arguments="parameters")


WRITERS: dict[str, Writer] = {
    **dict.fromkeys(("qwen3.5", "qwen3.8", "qwen3-coder"), _qwen),
    **dict.fromkeys(("qwen3", "smollm3", "hermes", "hermes-thinking"), _hermes),
    **dict.fromkeys(("mistral", "mistral-reasoning"), _mistral),
    **dict.fromkeys(("lfm2", "lfm2.5-thinking"), _lfm2),
    **dict.fromkeys(("deepseek-r1", "deepseek-r1-switched"), _deepseek_r1),
    **dict.fromkeys(("command", "north"), _cohere),
    **dict.fromkeys(("granite3.3", "phi4-mini"), _granite),
    "deepseek-v3.1": _deepseek_v31,
    "deepseek-v4": _dsml,
    "minimax": _minimax,
    "gemma4": _gemma4,
    "gpt-oss": _gpt_oss,
    "glimmer": _glimmer,
    "llama3": _llama3,
}

CALLERS = tuple(family for family in FAMILIES if family.has_calls)
THINKERS = tuple(family for family in CALLERS if family.mode is not Mode.NEVER)

# What a string that nothing escapes cannot hold: its own end.
UNWRITABLE = {"gemma4": ('<|"|>',)}


def with_reasoning(family: Family, thought: str, rest: str) -> str:
    """Output that reasons first."""
    if family.name == "gpt-oss":
        return f"<|channel|>analysis<|message|>{thought}<|end|><|start|>assistant{rest}"
    if family.name == "glimmer":
        return f" to=self<|message|>{thought}<|eom|><|start|>assistant{rest}"
    assert family.tags is not None
    return f"{family.tags.opener}{thought}{family.tags.closer}{rest}"
