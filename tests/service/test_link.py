import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from scripted_engine import Script, ScriptedEngine
from trio.testing import MockClock, wait_all_tasks_blocked

from hipfire.errors import ContextLengthExceeded, EngineUnavailable, HipfireError, OutOfMemory, Unsupported
from hipfire.service.link import EngineLink
from hipfire.service.ticket import Ticket
from hipfire.wire.messages import Cancelled, Finished, Generate, Load, Sampling, Started, Token

LOAD = Load(path="model.gguf")


def a_generation(id_: str = "a", *, max_tokens: int = 100) -> Generate:
    return Generate(id=id_, prompt=(1, 2), max_tokens=max_tokens, stop_ids=(), sampling=Sampling())


@asynccontextmanager
async def linked(script: Script) -> AsyncIterator[tuple[EngineLink, ScriptedEngine]]:
    async with trio.open_nursery() as nursery:
        engine = ScriptedEngine(nursery, script)
        link = EngineLink(engine.spawn)
        nursery.start_soon(link.run)
        await link.load(LOAD)
        yield link, engine
        nursery.cancel_scope.cancel()


async def tokens_of(ticket: Ticket) -> list[int]:
    return [event.token async for event in ticket if isinstance(event, Token)]


async def test_a_generation_is_tokens_and_one_end() -> None:
    async with linked(Script(tokens=[7, 8])) as (link, _):
        events = [event async for event in link.generate(a_generation())]
    assert [event.token for event in events if isinstance(event, Token)] == [7, 8]
    assert [type(event) for event in events] == [Started, Token, Token, Finished]


async def test_generations_do_not_mix() -> None:
    async with linked(Script(tokens=[7, 8, 9])) as (link, _):
        first, second = link.generate(a_generation("a")), link.generate(a_generation("b", max_tokens=2))
        assert await tokens_of(second) == [7, 8]
        assert await tokens_of(first) == [7, 8, 9]


async def test_cancel_is_idempotent_and_the_end_is_told_once() -> None:
    ends = []
    async with linked(Script(tokens=[7, 8], hold_after=1)) as (link, engine):
        ticket = link.generate(a_generation())
        ticket.at_end(lambda: ends.append("early"))
        await anext(ticket)
        await anext(ticket)
        ticket.cancel()
        ticket.cancel()
        assert [type(event) async for event in ticket] == [Cancelled]
        ticket.cancel()
        ticket.at_end(lambda: ends.append("late"))
        await wait_all_tasks_blocked()
        assert engine.cancelled == ["a"]
    assert ends == ["early", "late"]


@pytest.mark.parametrize(
    ("code", "kind"),
    [("context_length_exceeded", ContextLengthExceeded), ("out_of_memory", OutOfMemory), ("whatever", HipfireError)],
)
async def test_a_failure_is_raised_as_the_error_it_is(code: str, kind: type[HipfireError]) -> None:
    async with linked(Script(tokens=[7, 8], fail=(code, "no"), fail_after=1)) as (link, _):
        ticket = link.generate(a_generation())
        await anext(ticket)
        await anext(ticket)
        with pytest.raises(kind, match="no") as caught:
            await anext(ticket)
        assert type(caught.value) is kind
        assert [event async for event in ticket] == []


async def test_a_load_that_fails_raises_its_error() -> None:
    async with linked(Script()) as (link, engine):
        engine.script.fail_load = "unsupported", "what is this?"
        with pytest.raises(Unsupported, match="what is this"):
            await link.load(LOAD)


async def test_a_death_ends_every_generation_and_another_engine_starts(autojump_clock: MockClock) -> None:
    async with linked(Script(tokens=[7, 8], token_s=1, die_after=1)) as (link, engine):
        first, second = link.generate(a_generation("a")), link.generate(a_generation("b"))
        for ticket in (first, second):
            with pytest.raises(EngineUnavailable):
                await tokens_of(ticket)
        engine.script.die_after = None
        await link.load(LOAD)
        assert await tokens_of(link.generate(a_generation("c"))) == [7, 8]
        assert len(engine.processes) == 2


async def test_nothing_is_generated_while_the_engine_is_down() -> None:
    async with linked(Script()) as (link, engine):
        engine.processes[0].kill()
        with pytest.raises(EngineUnavailable):
            await tokens_of(link.generate(a_generation()))
        with pytest.raises(EngineUnavailable):
            link.generate(a_generation())
        assert link.is_restarting


async def test_a_death_in_a_load_fails_the_load() -> None:
    async with linked(Script()) as (link, engine):
        engine.script.die_in_load = True
        with pytest.raises(EngineUnavailable):
            await link.load(LOAD)


async def test_an_engine_that_babbles_is_replaced(caplog: pytest.LogCaptureFixture) -> None:
    async with linked(Script()) as (link, engine):
        await engine.processes[0].babble()
        await wait_all_tasks_blocked()
        assert len(engine.processes) == 2
        assert link.is_up
    assert "something else than a message" in caplog.text


async def test_a_silent_engine_is_replaced(autojump_clock: MockClock, caplog: pytest.LogCaptureFixture) -> None:
    async with linked(Script(tokens=[7], hold_after=0)) as (link, engine):
        ticket = link.generate(a_generation())
        await trio.sleep(1000)
        assert len(engine.processes) == 1
        engine.script.silent = True
        with pytest.raises(EngineUnavailable):
            await tokens_of(ticket)
        assert "silent for too long" in caplog.text
        engine.script.silent = False
        await link.load(LOAD)


async def test_three_deaths_within_a_minute_are_enough(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    async with linked(Script()) as (link, engine):
        for wait_s in (0, 40, 40, 10):
            assert not link.gave_up
            await trio.sleep(wait_s)
            engine.processes[-1].kill()
            await trio.sleep(1)
        assert link.gave_up
        assert len(engine.processes) == 4
        with pytest.raises(EngineUnavailable, match="keeps dying"):
            await link.load(LOAD)
        with pytest.raises(EngineUnavailable, match="keeps dying"):
            link.generate(a_generation())


async def test_an_engine_that_does_not_start_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    async def spawn() -> ScriptedEngine:
        raise FileNotFoundError("no such program")

    link = EngineLink(spawn)
    await link.run()
    assert link.gave_up
    assert "no such program" in caplog.text


async def test_the_process_is_stopped_when_the_link_is_cancelled() -> None:
    async with linked(Script()) as (_, engine):
        pass
    with trio.fail_after(1):
        await engine.processes[0].wait()
