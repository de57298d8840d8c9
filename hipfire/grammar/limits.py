"""What a grammar may cost the library, in the counters that it has for it. Knows no grammar."""

from collections.abc import Mapping

from llguidance import LLParserLimits

_MAX_MESSAGE = 300
# The library's names for what it says no more of.
_REASONS: Mapping[str, str] = {"NoExtensionBias": "nothing goes on, or ends, as it must"}


def parser_limits() -> LLParserLimits:
    """What a grammar may cost: some 20 ms for a mask at worst, and 100 MB for a constraint."""
    return LLParserLimits(
        max_items_in_row=5_000,
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        step_max_items=50_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        # It would go through the whole vocabulary before the first token.
        precompute_large_lexemes=False,
        verbose_errors=False,
    )


def first_line(message: str) -> str:
    """What a person needs of a message of the library."""
    line = message.strip().partition("\n")[0][:_MAX_MESSAGE]
    return _REASONS.get(line, line)
