"""Servers of a model that a scripted engine plays: a chat template of the family's form, and what the model says.

The templates are made for these tests: short, with the marks by which the family is told.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType

from scripted_engine import Script
from scripted_server import ScriptedServer, scripted_server
from scripted_service import models_in, some_settings, tiny_tokenizer, tokens_of
from sockets import PATIENCE_S

from hipfire.config.schema import Origin, Source, Sourced

NOTHING_SET: Mapping[str, object] = MappingProxyType({})

# Its parts in the order of a prompt: tools, turns with reasoning and calls, the beginning of the answer.
_TOOLS = "{% if tools %}T:{% for t in tools %}{{ t.function.name }},{% endfor %};{% endif %}"
_TURNS = (
    "{% for m in messages %}{{ m.role[0] }}:"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>\n<function={{ c.function.name }}>\n"
    "{% for key, value in c.function.arguments | items %}<parameter={{ key }}>\n{{ value }}\n</parameter>\n{% endfor %}"
    "</function>\n</tool_call>{% endfor %};{% endfor %}"
)
_SWITCHED = "a:{% if enable_thinking is false %}<think>\n\n</think>\n\n{% else %}<think>\n{% endif %}"
_PLAIN_TURNS = "{% for m in messages %}{{ m.content }};{% endfor %}a:"
_EFFORT = "{% if reasoning_effort %}E:{{ reasoning_effort }};{% endif %}"

TEMPLATES = {
    "qwen3.5": _TOOLS + _TURNS + _SWITCHED,
    "qwen3.8": _EFFORT + _TOOLS + _TURNS + _SWITCHED,
    "qwen3": "{# <tool_call> enable_thinking <think> #}" + _TOOLS + _PLAIN_TURNS,
    "hermes": "{# <tool_call> #}" + _TOOLS + _PLAIN_TURNS,
    "deepseek-r1": "{# tool▁calls▁begin #}" + _TOOLS + _PLAIN_TURNS + "<think>\n",
    "gemma4": "{# <|tool_call> <|channel> #}" + _TOOLS + _PLAIN_TURNS,
    "deepseek-v4": "{# DSML #}" + _EFFORT + _TOOLS + _PLAIN_TURNS + "{{ '<think>' if thinking else '</think>' }}",
    "plain": "{% for m in messages %}{{ m.role[0] }}:{{ m.content }};{% endfor %}a:",
}  # fmt: skip


def prompt_text(server: ScriptedServer, index: int = -1) -> str:
    """What the engine was asked, as text."""
    ids = server.engine.prompts()[index].prompt
    return b"".join(map(tiny_tokenizer().token_bytes, ids)).decode()


@asynccontextmanager
async def family_server(
    folder: Path,
    family: str,
    output: str,
    *,
    set_values: Mapping[str, object] = NOTHING_SET,
    patience_s: float = PATIENCE_S,
    **script: object,
) -> AsyncIterator[ScriptedServer]:
    """A server whose model is of a family and says one thing, whatever it is asked. `set_values`: settings by key."""
    template = folder / f"{family}.jinja"
    template.write_text(TEMPLATES[family], encoding="utf-8")
    settings = some_settings(prompt={"chat_template": str(template)}).replaced(
        {key: Sourced(value, Source(Origin.GLOBAL, "config.toml:1")) for key, value in set_values.items()}
    )
    models = folder / "models"
    models.mkdir(exist_ok=True)
    if not list(models.iterdir()):
        models_in(models, "tiny")
    fields = {"tokens": tokens_of(output), "context_length": 4096, **script}
    async with scripted_server(models_in(models), Script(**fields), settings=settings, patience_s=patience_s) as server:  # type: ignore[arg-type]
        yield server
