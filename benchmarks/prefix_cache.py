"""What a conversation's second turn costs with the prefix cache: time to its first token, in the engine.

    python benchmarks/prefix_cache.py MODEL [--history 1500] [--new 32 128] [--threads N] [--runs 7]

Three prompts, in turns, so that a busy machine is busy for each of them:
- `second turn`: a history that the engine has just answered, and new tokens;
- `new alone`: a prompt of as many tokens as the second turn evaluates, from an empty state;
- `cold`: the second turn without the cache, whose answer must be the warm one's, to the bit.
The ratio of the first two is what the history still costs: it is attended to by every new token.
"""

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import attrs
import numpy as np

from hipfire.engine.engine import Engine
from hipfire.engine.inbox import Inbox
from hipfire.engine.loader import Loader
from hipfire.wire.messages import Finished, FromEngine, Generate, Load, Loaded, Sampling, ToEngine, Token

N_ANSWER = 8


@attrs.frozen(kw_only=True)
class Outcome:
    """An answer's tokens with their log probabilities, and when the first one came."""

    said: tuple[tuple[int, float | None], ...]
    first_token_ms: float
    n_evaluated: int


class LocalEngine:
    """An engine in this thread, asked for one thing at a time."""

    def __init__(self, model: Path, *, n_threads: int | None, max_seq: int, prefix_cache: bool) -> None:
        self._said: list[tuple[float, FromEngine]] = []
        self._engine = Engine(Inbox(), self._hear, loader=Loader(), clock=time.perf_counter)
        self._run(Load(path=str(model), device="cpu", n_threads=n_threads, max_seq=max_seq, prefix_cache=prefix_cache))
        if not isinstance(self._said[-1][1], Loaded):
            raise SystemExit(str(self._said[-1][1]))

    def ask(self, prompt: Sequence[int]) -> Outcome:
        request = Generate(
            id="a", prompt=tuple(prompt), max_tokens=N_ANSWER, stop_ids=(), sampling=Sampling(n_logprobs=0)
        )
        start = time.perf_counter()
        self._run(request)
        tokens = [(at, message) for at, message in self._said if isinstance(message, Token)]
        end = self._said[-1][1]
        if not isinstance(end, Finished):
            raise SystemExit(str(end))
        return Outcome(
            said=tuple((token.token, token.logprob) for _, token in tokens),
            first_token_ms=1000 * (tokens[0][0] - start),
            n_evaluated=end.n_prompt - end.n_cached,
        )

    def _run(self, message: ToEngine) -> None:
        self._said.clear()
        self._engine.turn([message])
        while self._engine.is_busy:
            self._engine.turn([])

    def _hear(self, message: FromEngine) -> None:
        self._said.append((time.perf_counter(), message))


def measure(warm: LocalEngine, cold: LocalEngine, *, n_history: int, n_new: int, n_runs: int) -> dict[str, float]:
    """Medians in ms, and their ratios. The runs are of other tokens each."""
    second, alone, whole = [], [], []
    for run in range(n_runs):
        # Ids that every vocabulary has, past its control tokens.
        ids = np.random.default_rng((n_new, run)).integers(300, 20_000, n_history + n_new).tolist()
        history, new = ids[: n_history - N_ANSWER], ids[n_history:]
        history += [token for token, _ in warm.ask(history).said]
        second.append(warm.ask([*history, *new]))
        alone.append(cold.ask((new * 2)[: second[-1].n_evaluated]))
        whole.append(cold.ask([*history, *new]))
        if second[-1].said != whole[-1].said:
            raise SystemExit(f"warm {second[-1].said} is not cold {whole[-1].said}")
    second_ms, alone_ms, whole_ms = (
        statistics.median(outcome.first_token_ms for outcome in outcomes) for outcomes in (second, alone, whole)
    )
    return {
        "new": n_new,
        "evaluated": second[-1].n_evaluated,
        "second_turn_ms": round(second_ms, 2),
        "new_alone_ms": round(alone_ms, 2),
        "cold_ms": round(whole_ms, 2),
        "second_turn_over_new_alone": round(second_ms / alone_ms, 3),
        "median_of_ratios": round(
            statistics.median(a.first_token_ms / b.first_token_ms for a, b in zip(second, alone, strict=True)), 3
        ),
        "cold_over_second_turn": round(whole_ms / second_ms, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--history", type=int, default=1500, help="tokens of the first turn, its answer's among them")
    parser.add_argument("--new", type=int, nargs="+", default=[32, 128], help="new tokens of the second turn")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    max_seq = options.history + max(options.new) + N_ANSWER
    warm, cold = (
        LocalEngine(options.model, n_threads=options.threads, max_seq=max_seq, prefix_cache=prefix_cache)
        for prefix_cache in (True, False)
    )
    for n_new in options.new:
        figures = measure(warm, cold, n_history=options.history, n_new=n_new, n_runs=options.runs)
        print(json.dumps(figures), flush=True)


if __name__ == "__main__":
    main()
