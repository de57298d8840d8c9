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
from hipfire.cli.question import OnText, Outcome, Question
from hipfire.cli.report import sole_cause
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.errors import EngineUnavailable
from hipfire.service.engine_process import spawn_engine
from hipfire.service.events import Completed, TextDelta
from hipfire.service.request import ChatJob, Message, SamplingWishes
from hipfire.service.service import Service
from hipfire.service.stats import speed_of

_HERE = Source(Origin.FLAG, "the model asked for")


def ask_engine(question: Question, on_text: OnText, *, settings: Settings, store: Store, home: Path) -> Outcome:
    """Load the model, answer, and leave no process behind, whatever happens on the way.

    Raises HipfireError's subclasses. KeyboardInterrupt ends the answer and the engine.
    """
    # As the default model it may be a path; requests may name none.
    here = {"serve.default_model": Sourced(question.model, _HERE)}
    if settings.sourced("log.level").source.explicit:
        log_to_stderr(settings.log.level)
    else:
        # An answer is no server: nobody asked for a log, and what fails is raised.
        log_nothing()
        here["log.level"] = Sourced("error", _HERE)
    settings = settings.replaced(here)
    try:
        return trio.run(_ask, question, on_text, settings, store, home)
    except BaseExceptionGroup as group:
        raise sole_cause(group) from None


async def _ask(question: Question, on_text: OnText, settings: Settings, store: Store, home: Path) -> Outcome:
    spawn = partial(spawn_engine, settings.log.level, home)
    with LoadBar(Console(stderr=True)) as bar:
        service = Service(settings=settings, catalog=store, spawn=spawn, on_loading=bar.show)
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            outcome = await _answer(service, question, on_text, bar)
            nursery.cancel_scope.cancel()
    return outcome


async def _answer(service: Service, question: Question, on_text: OnText, bar: LoadBar) -> Outcome:
    async with aclosing(service.chat(_job(question))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                bar.close()
                on_text(event.text)
            elif isinstance(event, Completed):
                return _outcome(question, event)
    raise EngineUnavailable("the engine ended the answer without saying how")


def _job(question: Question) -> ChatJob:
    system = () if question.system is None else (Message(role="system", content=question.system),)
    wishes: dict[str, Any] = dict(question.wishes)
    max_tokens = wishes.pop("max_tokens", None)
    return ChatJob(
        model=None,
        messages=(*system, Message(role="user", content=question.prompt)),
        max_tokens=max_tokens,
        sampling=SamplingWishes(seed=question.seed, **wishes),
    )


def _outcome(question: Question, completed: Completed) -> Outcome:
    speed = speed_of(completed)
    return Outcome(
        model=question.model,
        finish_reason=completed.finish_reason,
        prompt_tokens=completed.usage.n_prompt,
        completion_tokens=completed.usage.n_generated,
        timings={
            "queue_ms": completed.timings.queue_ms,
            "prompt_ms": completed.timings.prompt_ms,
            "prompt_tok_s": speed.prompt_tok_s,
            "decode_ms": completed.timings.decode_ms,
            "decode_tok_s": speed.decode_tok_s,
        },
    )
