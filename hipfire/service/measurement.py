"""Measures an engine of its own: how long a model takes to load, and how fast it reads a prompt and writes an answer.

The engine is the process that a serve would have, without the server: no text, no HTTP, no prefix cache. Knows no
terminal.
"""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from hipfire.config.schema import Settings
from hipfire.errors import EngineUnavailable
from hipfire.service.engine_process import spawn_engine
from hipfire.service.link import EngineLink
from hipfire.service.residency import OnLoading
from hipfire.wire.messages import Finished, Generate, Load, Loaded, Sampling, Token

# Room for the answer's first token beside the prompt.
_MIN_CONTEXT = 512


@attrs.frozen(kw_only=True)
class Plan:
    """What is measured: `n_runs` prompts of `n_prompt` tokens, and as many answers of `n_answer` to one token."""

    path: Path
    n_prompt: int
    n_answer: int
    n_runs: int

    @property
    def n_context(self) -> int:
        return max(self.n_prompt + 1, self.n_answer + 1, _MIN_CONTEXT)


@attrs.frozen
class Sample:
    """A figure from several runs."""

    runs: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.runs)

    @property
    def spread(self) -> float:
        """From the lowest to the highest, as a part of the median."""
        return (max(self.runs) - min(self.runs)) / self.median


@attrs.frozen(kw_only=True)
class Measured:
    """Speeds in tokens per second, times in milliseconds. `loaded` says what it was measured on."""

    loaded: Loaded
    load_ms: float
    """From the start of the process until the model can be asked."""
    prefill_tok_s: Sample
    decode_tok_s: Sample
    first_token_ms: Sample
    """From the request of the whole prompt to its answer's first token."""


OnRun = Callable[[int], None]
"""Called with the number of runs that are done, the warm-up among them."""


async def measure(plan: Plan, settings: Settings, home: Path, *, on_loading: OnLoading, on_run: OnRun) -> Measured:
    """Load the model and measure it, after one run that does not count. Leaves no process behind.

    Raises HipfireError's subclasses, in the groups of its nursery.
    """
    link = EngineLink(partial(spawn_engine, "error", home))
    began_at = time.perf_counter()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(link.run)
        loaded = await link.load(
            _load(plan, settings), on_progress=lambda progress: on_loading(plan.path.name, progress.fraction)
        )
        load_ms = 1000 * (time.perf_counter() - began_at)
        runs = []
        for number in range(plan.n_runs + 1):
            runs.append(await _run(link, plan, loaded.n_vocab, number))
            on_run(number + 1)
        nursery.cancel_scope.cancel()
    prefills, decodes, waits = zip(*runs[1:], strict=True)
    return Measured(
        loaded=loaded,
        load_ms=load_ms,
        prefill_tok_s=Sample(prefills),
        decode_tok_s=Sample(decodes),
        first_token_ms=Sample(waits),
    )


def _load(plan: Plan, settings: Settings) -> Load:
    return Load(
        path=str(plan.path),
        device=settings.hardware.device,
        n_threads=settings.hardware.threads,
        max_seq=plan.n_context,
        kv_cache=settings.memory.kv_cache,
        graphs=settings.hardware.graphs,
        prefix_cache=False,
    )


async def _run(link: EngineLink, plan: Plan, n_vocab: int, number: int) -> tuple[float, float, float]:
    """Prefill and decode speed and the wait for the first token, of one prompt and one answer."""
    draw = random.Random(number)
    prompt = [draw.randrange(n_vocab) for _ in range(plan.n_prompt)]
    asked_at = time.perf_counter()
    first_at, prefill = await _generate(link, prompt, n_tokens=1, id_=f"prompt-{number}")
    _, decode = await _generate(link, prompt[:1], n_tokens=plan.n_answer, id_=f"answer-{number}")
    # The first token comes out of the prompt.
    return (
        1000 * plan.n_prompt / prefill.prompt_ms,
        1000 * (plan.n_answer - 1) / decode.decode_ms,
        1000 * (first_at - asked_at),
    )


async def _generate(link: EngineLink, prompt: Sequence[int], *, n_tokens: int, id_: str) -> tuple[float, Finished]:
    """When the first token was there, and the end of a generation that nothing stops early."""
    first_at = None
    ticket = link.generate(
        Generate(id=id_, prompt=tuple(prompt), max_tokens=n_tokens, stop_ids=(), sampling=Sampling())
    )
    async for event in ticket:
        if isinstance(event, Token) and first_at is None:
            first_at = time.perf_counter()
        if isinstance(event, Finished) and first_at is not None:
            return first_at, event
    raise EngineUnavailable("the engine ended a run without an answer", hint="try again")
