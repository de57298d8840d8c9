"""Whether a grammar can be used, found out in a process of its own: `python -m hipfire.grammar.check`.

The library compiles most schemas in a millisecond, but some take minutes or gigabytes, and some overflow its stack,
which ends the process it runs in. So this one has a budget of processor time and memory, and whoever started it takes
its death for a no. The budget is processor time because a busy machine makes no schema worse.

Reads from stdin a JSON array of arrays of grammars, each in the order in which they are preferred. Writes an array with
an object for each: `chosen` is the index of the first that can be used, or null, and `error` what is wrong with the
first one if it is not that. Knows no model's tokens.
"""

import json
import re
import resource
import signal
import sys
import threading
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer

from hipfire.grammar.limits import first_line, parser_limits

BUDGET_S = 0.4
BUDGET_NBYTES = 1 << 30
STACK_NBYTES = 4 << 20
"""Less than the engine's threads have: what passes here does not end the engine."""

# What the library says to those who call it; our clients can do something else.
_IN_OUR_WORDS = {"oneOf constraints are not supported": "oneOf is not supported: use anyOf, or strict false"}
_PATTERN_ERROR = re.compile(r"^error: (.+)$", re.MULTILINE)


def examine(grammars: Sequence[str]) -> dict[str, object]:
    """The first of the grammars that can be used."""
    error = None
    any_bytes = LLTokenizer("byte")
    for index, grammar in enumerate(grammars):
        matcher = LLMatcher(any_bytes, grammar, log_level=0, limits=parser_limits())
        if not matcher.is_error():
            # A schema that is only a reference to itself compiles, and has no beginning.
            matcher.compute_bitmask()
        if not matcher.is_error():
            return {"chosen": index, "error": error}
        error = error or _cause(matcher.get_error())
    return {"chosen": None, "error": error}


def _cause(message: str) -> str:
    """What is wrong, without where: the grammar is nothing that the client wrote."""
    line = first_line(message)
    cause = line.partition("failed to compile JSON schema: ")[2] or line
    for theirs, ours in _IN_OUR_WORDS.items():
        if cause.startswith(theirs):
            return ours
    # What is wrong with a pattern comes below a drawing of it.
    detail = _PATTERN_ERROR.search(message)
    return f"{cause} {detail[1]}" if detail is not None else cause


def main() -> None:
    asked = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (BUDGET_NBYTES, BUDGET_NBYTES))
    # Its signal is not handled, so it ends the process.
    signal.setitimer(signal.ITIMER_PROF, BUDGET_S)
    threading.stack_size(STACK_NBYTES)
    thread = threading.Thread(target=lambda: sys.stdout.write(json.dumps(list(map(examine, asked)))))
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
