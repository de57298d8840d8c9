"""What an answer must be, by the request and the model's family, as a grammar. Knows no engine."""

from hipfire.errors import Unsupported
from hipfire.grammar.rules import Rules
from hipfire.grammar.tokens import pack_tokens
from hipfire.service.model_text import ModelText
from hipfire.service.request import ChatJob
from hipfire.text.dialects.syntax import CannotForce, Tools
from hipfire.text.literals import LiteralMatcher
from hipfire.text.tokenizer import Tokenizer
from hipfire.wire.messages import Vocabulary

# A small model that has to call something would go on calling.
_MOST_CALLS = 8


def grammar_of(
    job: ChatJob, text: ModelText, *, tools: Tools, begins_inside: bool, may_reason: bool, is_lenient: bool
) -> str | None:
    """The grammar of everything that the model may say; None where it may say anything.

    `tools` are those that the request declares. `begins_inside`: the prompt opens the reasoning; `may_reason`: the
    model may open it. Raises Unsupported where the family's syntax takes no force.
    """
    wanted = job.answer_format
    if wanted is None and not job.must_call:
        return None
    param = "tool_choice" if job.must_call else "response_format"
    last = job.messages[-1]
    if last.role == "assistant" and last.content and not last.calls:
        raise Unsupported(f"{param}: an answer that is begun cannot be kept to it", param=param)
    rules = Rules(LiteralMatcher(text.tokenizer.control_texts).split, lenient=is_lenient)
    try:
        start = text.family.output_rule(
            rules,
            answer=None if wanted is None or job.must_call else rules.json(wanted.schema, strict=wanted.is_strict),
            tools={name: tool for name, tool in tools.items() if not job.must_call or name in job.must_call},
            most_calls=1 if job.keeps_one_call else _MOST_CALLS,
            begins_inside=begins_inside,
            may_reason=may_reason,
        )
    except CannotForce as why:
        family = text.family.name
        raise Unsupported(f"{param}: calls as {family} writes them cannot be forced: {why}", param=param) from None
    return rules.grammar(start)


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What the engine must know of the tokens to keep to a grammar. Takes half a second for a large vocabulary."""
    control = frozenset(tokenizer.control_texts.values())
    lengths, data = pack_tokens(
        [b"" if token in control else tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
    )
    return Vocabulary(lengths=lengths, data=data, end_ids=tuple(sorted(tokenizer.eos_ids)))
