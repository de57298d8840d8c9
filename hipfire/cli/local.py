"""Asks an engine of our own, for one question: the service without a server around it."""

from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import trio
from rich.console import Console

from hipfire.catalog.store import Store
from hipfire.cli.load_bar import LoadBar
from hipfire.cli.logs import log_nothing, log_to_stderr
from hipfire.cli.question import Listener, Outcome, Question
from hipfire.cli.report import sole_cause
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.errors import EngineUnavailable
from hipfire.service.engine_process import spawn_engine
from hipfire.service.events import Completed, ReasoningDelta, TextDelta
from hipfire.service.request import ChatJob, Message, ReasoningWishes, SamplingWishes
from hipfire.service.service import Service
from hipfire.service.stats import speed_of

_HERE = Source(Origin.FLAG, "the model asked for")


def ask_engine(question: Question, listener: Listener, *, settings: Settings, store: Store, home: Path) -> Outcome:
    """Load the model, answer, and leave no process behind, whatever happens on the way.

    Raises HipfireError's subclasses. KeyboardInterrupt ends the answer and the engine.
    """
    # As the default model it may be a path; requests may name none.
    here = {"serve.default_model": Sourced(question.model, _HERE)}
    if settings.sourced("log.level").source.explicit:
        log_to_stderr(settings.log)
    else:
        # An answer is no server: nobody asked for a log, and what fails is raised.
        log_nothing()
        here["log.level"] = Sourced("error", _HERE)
    settings = settings.replaced(here)
    try:
        return trio.run(_ask, question, listener, settings, store, home)
    except BaseExceptionGroup as group:
        raise sole_cause(group) from None


async def _ask(question: Question, listener: Listener, settings: Settings, store: Store, home: Path) -> Outcome:
    spawn = partial(spawn_engine, settings.log.level, home, log_format=settings.log.format)
    with LoadBar(Console(stderr=True)) as bar:
        service = Service(settings=settings, catalog=store, spawn=spawn, on_loading=bar.show)
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            outcome = await _answer(service, question, listener, bar)
            nursery.cancel_scope.cancel()
    return outcome


async def _answer(service: Service, question: Question, listener: Listener, bar: LoadBar) -> Outcome:
    async with aclosing(service.chat(_job(question))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                bar.close()
                listener.on_text(event.text)
            elif isinstance(event, ReasoningDelta):
                bar.close()
                listener.on_reasoning(event.text)
            elif isinstance(event, Completed):
                return _outcome(question, event)
    raise EngineUnavailable("the engine ended the answer without saying how")


def _job(question: Question) -> ChatJob:
    wishes: dict[str, Any] = dict(question.wishes)
    max_tokens = wishes.pop("max_tokens", None)
    return ChatJob(
        model=None,
        messages=tuple(
            Message(role=turn.role, content=turn.content, reasoning_content=turn.reasoning or None)
            for turn in question.turns
        ),
        max_tokens=max_tokens,
        sampling=SamplingWishes(seed=question.seed, **wishes),
        reasoning=ReasoningWishes(
            modes=_wish(question, "thinking"),
            efforts=_wish(question, "reasoning_effort"),
            caps=_wish(question, "max_think_tokens"),
            budgets=_wish(question, "thinking_budget"),
        ),
    )


def _wish(question: Question, name: str) -> tuple[tuple[str, Any], ...]:
    return ((name, question.reasoning[name]),) if name in question.reasoning else ()


def _outcome(question: Question, completed: Completed) -> Outcome:
    speed = speed_of(completed)
    return Outcome(
        model=question.model,
        finish_reason=completed.finish_reason,
        prompt_tokens=completed.usage.n_prompt,
        completion_tokens=completed.usage.n_generated,
        timings={
            "queue_ms": round(completed.timings.queue_ms, 3),
            "prompt_ms": round(completed.timings.prompt_ms, 3),
            "prompt_tok_s": round(speed.prompt_tok_s, 3),
            "decode_ms": round(completed.timings.decode_ms, 3),
            "decode_tok_s": round(speed.decode_tok_s, 3),
        },
        warnings=completed.warnings,
    )
