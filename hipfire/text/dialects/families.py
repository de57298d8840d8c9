"""The families, a row each. The first row that fits a model is its family."""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from hipfire.text.dialects.atem import Atem
from hipfire.text.dialects.deepseek import DeepSeek
from hipfire.text.dialects.family import Cap, Family, Mode
from hipfire.text.dialects.gemma import Gemma
from hipfire.text.dialects.harmony import Harmony
from hipfire.text.dialects.hermes_json import HermesJson
from hipfire.text.dialects.invocations import Invocations
from hipfire.text.dialects.llama_json import LlamaJson
from hipfire.text.dialects.mistral import Mistral
from hipfire.text.dialects.pythonic import Pythonic
from hipfire.text.dialects.qwen_xml import QwenXml
from hipfire.text.dialects.tagged import Tags

PLAIN = Family(name="plain")

_THINK = Tags()
_QWEN_EFFORTS = MappingProxyType({"low": "low", "medium": "medium", "high": "xhigh", "xhigh": "xhigh", "max": "xhigh"})

_DSML = Invocations(blocks=("｜DSML｜tool_calls", "｜DSML｜function_calls"), mark="｜DSML｜", tells_types=True)

# What Cohere's models put around reasoning and, of one kind or the other, around the answer.
_COHERE = Tags(
    opener="<|START_THINKING|>",
    closer="<|END_THINKING|>",
    ignored=("<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>"),
)
_COHERE_ACTION = HermesJson(
    opener="<|START_ACTION|>",
    closer="<|END_ACTION|>",
    needs_closer=False,
    head='{{"tool_call_id": "0", "tool_name": {name}, "parameters": ',
)

_QWEN_38 = Family(
    name="qwen3.8",
    needles=("<function=", "<think>", "reasoning_effort"),
    tags=_THINK,
    syntax=QwenXml(),
    mode=Mode.DEFAULT_ON,
    efforts=_QWEN_EFFORTS,
    default_effort="xhigh",
    cap=Cap.TOKENS,
)

# What a template does not tell, only a card can.
_BY_CARD_ONLY = (attrs.evolve(_QWEN_38, name="ornith1.5"),)

FAMILIES = (
    Family(
        name="gpt-oss",
        needles=("<|channel|>", "<|start|>"),
        channels=Harmony(),
        mode=Mode.ALWAYS,
        efforts=MappingProxyType({effort: effort for effort in ("low", "medium", "high")}),
        default_effort="medium",
    ),
    Family(
        name="glimmer",
        needles=("<atem:",),
        channels=Atem(),
        mode=Mode.ALWAYS,
        efforts=MappingProxyType({effort: effort for effort in ("low", "medium", "high", "xhigh")}),
        effort_argument="reasoning_strength",
        default_effort="high",
    ),
    Family(
        name="gemma4",
        needles=("<|tool_call>", "<|channel>"),
        tags=Tags(opener="<|channel>thought", closer="<channel|>", parts=("<|channel>",)),
        syntax=Gemma(),
        mode=Mode.DEFAULT_OFF,
    ),
    _QWEN_38,
    Family(
        name="qwen3.5",
        needles=("<function=", "<think>"),
        tags=_THINK,
        syntax=QwenXml(),
        mode=Mode.DEFAULT_ON,
        cap=Cap.TOKENS_OR_NAME,
    ),
    Family(name="qwen3-coder", needles=("<function=",), syntax=QwenXml()),
    Family(
        name="deepseek-v4",
        needles=("<think>", "DSML"),
        tags=_THINK,
        syntax=_DSML,
        mode=Mode.DEFAULT_ON,
        mode_argument="thinking",
        efforts=MappingProxyType({"low": "low", "medium": "high", "high": "high", "xhigh": "high", "max": "max"}),
    ),
    Family(
        name="deepseek-v3.1",
        needles=("<think>", "tool▁calls▁begin", "thinking is defined"),
        tags=_THINK,
        syntax=DeepSeek(),
        mode=Mode.DEFAULT_OFF,
        mode_argument="thinking",
        cap=Cap.TOKENS,
        cap_end="</think>",
    ),
    # A distillate whose template closes the reasoning unless it is told to think.
    Family(
        name="deepseek-r1-switched",
        needles=("tool▁calls▁begin", "enable_thinking"),
        tags=_THINK,
        syntax=DeepSeek(is_fenced=True),
        mode=Mode.DEFAULT_ON,
        cap=Cap.TOKENS,
    ),
    Family(
        name="deepseek-r1",
        needles=("tool▁calls▁begin",),
        tags=_THINK,
        syntax=DeepSeek(is_fenced=True),
        mode=Mode.ALWAYS,
        cap=Cap.TOKENS,
    ),
    Family(
        name="mistral-reasoning",
        needles=("[TOOL_CALLS]", "[THINK]"),
        tags=Tags(opener="[THINK]", closer="[/THINK]"),
        syntax=Mistral(),
        mode=Mode.ALWAYS,
        cap=Cap.TOKENS,
        cap_end="[/THINK]",
    ),
    Family(name="mistral", needles=("[TOOL_CALLS]",), syntax=Mistral()),
    Family(
        name="lfm2.5-thinking",
        needles=("<think>",),
        architectures=("lfm2", "lfm2moe"),
        tags=_THINK,
        syntax=Pythonic(),
        mode=Mode.ALWAYS,
        cap=Cap.TOKENS,
        cap_end="</think>",
    ),
    Family(name="lfm2", architectures=("lfm2", "lfm2moe"), syntax=Pythonic()),
    Family(
        name="granite3.3",
        needles=("<think>", "<response>", "<|tool_call|>"),
        tags=Tags(ignored=("<response>", "</response>")),
        syntax=HermesJson(opener="<|tool_call|>", closer="<|/tool_call|>", needs_closer=False),
        mode=Mode.DEFAULT_OFF,
        mode_argument="thinking",
        cap=Cap.TOKENS,
        cap_end="</think><response>",
    ),
    Family(
        name="phi4-mini",
        needles=("<|tool_call|>",),
        syntax=HermesJson(opener="<|tool_call|>", closer="<|/tool_call|>", needs_closer=False),
    ),
    Family(
        name="north",
        needles=("<|START_ACTION|>", "<|START_TEXT|>"),
        tags=_COHERE,
        syntax=_COHERE_ACTION,
        mode=Mode.DEFAULT_ON,
        mode_argument="reasoning",
        cap=Cap.TOKENS,
        cap_end="<|END_THINKING|>",
    ),
    Family(
        name="command",
        needles=("<|START_ACTION|>", "<|START_RESPONSE|>"),
        tags=_COHERE,
        syntax=_COHERE_ACTION,
        mode=Mode.DEFAULT_OFF,
        cap=Cap.TOKENS,
        cap_end="<|END_THINKING|>",
    ),
    Family(
        name="minimax",
        needles=("<minimax:tool_call>", "<think>"),
        tags=_THINK,
        syntax=Invocations(blocks=("minimax:tool_call",)),
        mode=Mode.ALWAYS,
        cap=Cap.TOKENS,
    ),
    Family(name="llama3", needles=("<|start_header_id|>", '"parameters"'), syntax=LlamaJson()),
    Family(
        name="smollm3",
        needles=("<think>", "enable_thinking", "SmolLM"),
        tags=_THINK,
        syntax=HermesJson(),
        mode=Mode.DEFAULT_ON,
        cap=Cap.TOKENS_OR_NAME,
        cap_end="\n</think>\n",
    ),
    Family(
        name="qwen3",
        needles=("<think>", "<tool_call>", "enable_thinking"),
        tags=_THINK,
        syntax=HermesJson(),
        mode=Mode.DEFAULT_ON,
        cap=Cap.TOKENS_OR_NAME,
    ),
    Family(
        name="hermes-thinking",
        needles=("<think>", "<tool_call>"),
        tags=_THINK,
        syntax=HermesJson(),
        mode=Mode.ALWAYS,
        cap=Cap.TOKENS,
    ),
    Family(name="hermes", needles=("<tool_call>",), syntax=HermesJson()),
    Family(name="thinking", needles=("<think>",), tags=_THINK, mode=Mode.ALWAYS, cap=Cap.TOKENS),
)

_BY_NAME: Mapping[str, Family] = MappingProxyType(
    {family.name: family for family in (*FAMILIES, *_BY_CARD_ONLY, PLAIN)}
)


def family_of(*, card: str | None, architecture: str, template: str) -> Family:
    """The family of a model: the one that its card names, else by architecture and chat template; PLAIN, if none."""
    if card is not None:
        return _BY_NAME[card]
    for family in FAMILIES:
        if (not family.architectures or architecture in family.architectures) and all(
            needle in template for needle in family.needles
        ):
            return family
    return PLAIN
