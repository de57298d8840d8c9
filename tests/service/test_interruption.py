"""Chats that do not come to their end: the client goes, the engine dies, the server stops."""

from contextlib import aclosing
from typing import Any

import pytest
import trio
from chats import HELLO, a_job, events_of, hello, text_of, until
from scripted_service import scripted_service
from trio.testing import wait_all_tasks_blocked

from hipfire.catalog.store import Store
from hipfire.errors import (
    EngineUnavailable,
)
from hipfire.service.events import TextDelta


class TestCancellation:
    """Whoever goes, goes at once, and the next one in the queue runs."""

    async def test_in_the_queue(self, store: Store) -> None:
        async with (
            scripted_service(store, hello(hold_after=1)) as (service, engine),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(events_of, service.chat(a_job()))
            await until(lambda: len(engine.prompts()) == 1)
            async with trio.open_nursery() as waiting:
                waiting.start_soon(events_of, service.chat(a_job()))
                await until(lambda: service.admission.n_waiting == 1)
                waiting.cancel_scope.cancel()
            assert service.admission.n_waiting == 0
            assert engine.cancelled == []
            nursery.cancel_scope.cancel()

    async def test_while_the_model_is_loaded(self, store: Store) -> None:
        async with scripted_service(store, hello(load_s=0.05)) as (service, engine):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events_of, service.chat(a_job()))
                await until(lambda: bool(engine.loads()))
                nursery.cancel_scope.cancel()
            assert service.admission.n_running == 0
            # The load goes on, and is there for the next one.
            assert text_of(await events_of(service.chat(a_job()))) == HELLO
            assert len(engine.loads()) == 1

    @pytest.mark.parametrize("script", [{"prefill_s": 1000}, {"hold_after": 2}], ids=["prefill", "decode"])
    async def test_while_the_engine_works(self, store: Store, script: dict[str, Any]) -> None:
        async with scripted_service(store, hello(**script)) as (service, engine):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events_of, service.chat(a_job()))
                await until(lambda: len(engine.prompts()) == 1)
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await wait_all_tasks_blocked()
            assert engine.cancelled == [engine.prompts()[0].id]
            assert (service.admission.n_running, service.stats.n_cancelled) == (0, 1)
            engine.script.prefill_s, engine.script.hold_after = 0, None
            assert text_of(await events_of(service.chat(a_job()))) == HELLO

    async def test_a_chat_that_is_closed_in_the_middle(self, store: Store) -> None:
        async with scripted_service(store, hello(hold_after=3)) as (service, engine):
            async with aclosing(service.chat(a_job())) as events:
                async for event in events:
                    if isinstance(event, TextDelta):
                        break
            await wait_all_tasks_blocked()
            assert len(engine.cancelled) == 1
            assert service.stats.n_cancelled == 1


class TestEngineDeath:
    async def test_its_requests_fail_the_others_wait_and_the_model_comes_back(self, store: Store) -> None:
        outcomes = []

        async def chat() -> None:
            try:
                outcomes.append(text_of(await events_of(service.chat(a_job()))))
            except EngineUnavailable:
                outcomes.append("failed")

        async with scripted_service(store, hello(hold_after=1)) as (service, engine):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(chat)
                await until(lambda: len(engine.prompts()) == 1)
                nursery.start_soon(chat)
                await until(lambda: service.admission.n_waiting == 1)
                engine.script.load_s, engine.script.hold_after = 0.05, None
                engine.processes[0].kill()
                await until(lambda: len(engine.loads()) == 2)
                assert service.health().status == "restarting"
                assert service.health().loading_model == "tiny"
            assert outcomes == ["failed", HELLO]
            assert service.health().status == "ok"
            assert len(engine.loads()) == 2

    async def test_an_engine_that_keeps_dying_is_given_up(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        async with scripted_service(store, hello()) as (service, engine):
            await events_of(service.chat(a_job()))
            engine.script.die_in_load = True
            engine.processes[0].kill()
            await until(lambda: len(engine.processes) == 3)
            assert not service.failed.is_set()
            for _ in range(2):
                with pytest.raises(EngineUnavailable):
                    await events_of(service.chat(a_job()))
            assert service.failed.is_set()
            assert service.health().status == "unhealthy"
        assert len(engine.processes) == 3
        assert "giving up" in caplog.text


async def test_a_shutdown_fails_what_runs_and_what_waits(store: Store) -> None:
    errors = []

    async def chat() -> None:
        try:
            await events_of(service.chat(a_job()))
        except EngineUnavailable as error:
            errors.append(error.message)

    async with scripted_service(store, hello(hold_after=1)) as (service, engine):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(chat)
            await until(lambda: len(engine.prompts()) == 1)
            nursery.start_soon(chat)
            await until(lambda: service.admission.n_waiting == 1)
            service.stop_answering()
        await chat()
        await wait_all_tasks_blocked()
        assert len(engine.cancelled) == 1
    assert errors == ["the server is shutting down"] * 3
