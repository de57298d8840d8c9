from pathlib import Path

import attrs
import pytest
import trio
from chats import HELLO, a_job, end_of, events_of, hello, text_of, until
from scripted_engine import Script
from scripted_service import scripted_service, some_settings, tiny_tokenizer, tokens_of
from trio.testing import MockClock, wait_all_tasks_blocked

from hipfire.catalog.store import InstalledModel, Store
from hipfire.config.schema import Prompt, Settings
from hipfire.errors import (
    ContextLengthExceeded,
    HipfireError,
    InvalidRequest,
    ModelFileError,
    ModelNotFound,
    OutOfMemory,
    ServerBusy,
    TemplateError,
)
from hipfire.service.model_text import ModelText, read_model_text
from hipfire.service.request import ChatJob, Message, ReasoningWishes, SamplingWishes
from hipfire.wire.messages import Load, Unload


async def test_a_chat_is_text_and_in_the_end_how_it_went(store: Store) -> None:
    async with scripted_service(store, hello(n_cached=3)) as (service, engine):
        events = await events_of(service.chat(a_job()))
        (prompt,) = engine.prompts()
    assert text_of(events) == HELLO
    completed = end_of(events)
    assert completed.finish_reason == "stop"
    assert completed.usage.n_prompt == len(prompt.prompt) > 0
    assert completed.usage.n_generated == len(tokens_of(HELLO))
    assert completed.usage.n_cached == 3
    assert (completed.timings.prompt_ms, completed.timings.decode_ms) == (10.0, 20.0)


async def test_what_the_engine_is_asked_for(store: Store) -> None:
    settings = some_settings(generation={"temperature": 0.7, "max_tokens": 5})
    async with scripted_service(store, hello(), settings=settings) as (service, engine):
        events = await events_of(service.chat(a_job(sampling=SamplingWishes(top_k=3))))
        await events_of(service.chat(a_job(max_tokens=2, sampling=SamplingWishes(seed=9))))
        first, second = engine.prompts()
    assert (first.max_tokens, first.sampling.temperature, first.sampling.top_k, first.sampling.seed) == (
        5,
        0.7,
        3,
        4711,
    )
    assert (second.max_tokens, second.sampling.seed) == (2, 9)
    assert first.stop_ids
    assert first.prompt == second.prompt
    assert end_of(events).finish_reason == "length"


async def test_what_the_engine_is_to_load(store: Store) -> None:
    settings = some_settings(
        serve={"max_concurrent": 3},
        memory={"max_seq": 600, "kv_cache": "f32", "prefix_cache": False, "prefix_cache_bytes": 123},
    )
    async with scripted_service(store, hello(), settings=settings) as (service, engine):
        await events_of(service.chat(a_job()))
        (load,) = (message for message in engine.heard if isinstance(message, Load))
    assert (load.max_concurrent, load.max_seq, load.kv_cache) == (3, 600, "f32")
    assert (load.prefix_cache, load.prefix_cache_nbytes) == (False, 123)


async def test_a_stop_string_stops_the_engine(store: Store) -> None:
    script = Script(tokens=tokens_of(HELLO) * 9, hold_after=30, n_cached=4)
    async with scripted_service(store, script) as (service, engine):
        events = await events_of(service.chat(a_job(stop=("world",))))
        await wait_all_tasks_blocked()
        assert len(engine.cancelled) == 1
        assert service.admission.n_running == 0
    assert text_of(events) == "Hello, "
    assert end_of(events).finish_reason == "stop"
    assert end_of(events).usage.n_cached == 4


async def test_a_prompt_that_does_not_fit_is_refused(store: Store) -> None:
    async with scripted_service(store, hello(context_length=20)) as (service, engine):
        with pytest.raises(ContextLengthExceeded):
            await events_of(service.chat(a_job("hi " * 100)))
        assert engine.prompts() == []
        assert service.admission.n_running == 0


async def test_a_bias_outside_the_vocabulary_is_refused(store: Store) -> None:
    async with scripted_service(store, hello()) as (service, _):
        with pytest.raises(InvalidRequest, match="logit_bias"):
            await events_of(service.chat(a_job(sampling=SamplingWishes(logit_bias={512: 1.0}))))


async def test_the_system_prompt_of_the_settings_is_for_those_who_have_none(store: Store) -> None:
    settings = some_settings(prompt={"system": "Be brief."})
    own = ChatJob(model=None, messages=(Message(role="system", content="Be long."), Message(role="user", content="hi")))
    async with scripted_service(store, hello(), settings=settings) as (service, engine):
        await events_of(service.chat(a_job()))
        await events_of(service.chat(own))
        first, second = (bytes_of(message.prompt) for message in engine.prompts())
    assert b"Be brief." in first
    assert b"Be brief." not in second
    assert b"Be long." in second


def bytes_of(prompt: tuple[int, ...]) -> bytes:
    tokenizer = tiny_tokenizer()
    return b"".join(map(tokenizer.token_bytes, prompt))


async def test_reasoning_is_dropped_with_a_warning(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    async with scripted_service(store, hello()) as (service, _):
        events = await events_of(
            service.chat(a_job(reasoning=ReasoningWishes(modes=(("thinking", True),), caps=(("max_think_tokens", 5),))))
        )
    assert end_of(events).warnings == (
        "thinking: dropped, tiny does not reason",
        "max_think_tokens: dropped, tiny does not reason",
    )
    assert caplog.text.count("[WARN: INVALID CONFIG]") == 2


class TestModels:
    async def test_the_default_model_is_loaded_on_demand_and_once(self, store: Store) -> None:
        async with scripted_service(store, hello()) as (service, engine):
            assert service.health().model is None
            await events_of(service.chat(a_job()))
            await events_of(service.chat(a_job(model="tiny")))
            assert service.health().model == "tiny"
            assert service.health().native is True
            assert len(engine.loads()) == 1

    async def test_another_model_takes_its_place(self, store: Store) -> None:
        async with scripted_service(store, hello()) as (service, engine):
            await events_of(service.chat(a_job()))
            with await service.open_chat(a_job(model="other")) as chat:
                assert chat.model == "other"
                await chat.start()
            # Who names no model gets the one that is there.
            with await service.open_chat(a_job()) as chat:
                assert chat.model == "other"
            kinds = [type(message) for message in engine.heard if isinstance(message, Load | Unload)]
        assert kinds == [Load, Unload, Load]

    async def test_a_switch_waits_for_those_who_use_the_model(self, store: Store) -> None:
        settings = some_settings(serve={"max_concurrent": 3})
        order = []

        async def chat(model: str) -> None:
            await events_of(service.chat(a_job(model=model)))
            order.append(model)

        async with scripted_service(store, hello(hold_after=1), settings=settings) as (service, engine):
            async with trio.open_nursery() as nursery:
                for n, model in enumerate(("tiny", "other", "tiny")):
                    nursery.start_soon(chat, model)
                    await until(lambda n=n: service.admission.n_running == n + 1)
                await until(lambda: len(engine.prompts()) == 1)
                await wait_all_tasks_blocked()
                assert engine.loads() == [str(store.models_dir / "tiny.gguf")]
                engine.script.go.set()
            assert len(engine.loads()) == 3
        assert order == ["tiny", "other", "tiny"]

    async def test_an_unknown_model_is_refused_before_the_queue(self, store: Store) -> None:
        async with scripted_service(store, hello(), settings=some_settings(serve={"max_queue": 1})) as (
            service,
            engine,
        ):
            with pytest.raises(ModelNotFound):
                await events_of(service.chat(a_job(model="nobody")))
            with pytest.raises(ModelNotFound, match="path"):
                await events_of(service.chat(a_job(model="/etc/passwd")))
            assert engine.heard == []

    async def test_what_the_server_was_started_with_may_be_named_by_its_path(self, store: Store) -> None:
        elsewhere = store.models_dir.parent / "elsewhere.gguf"
        elsewhere.symlink_to(store.models_dir / "tiny.gguf")
        settings = some_settings(serve={"default_model": str(elsewhere)})
        async with scripted_service(store, hello(), settings=settings) as (service, _):
            assert (await service.resolve(str(elsewhere))).path == elsewhere
            with pytest.raises(ModelNotFound, match="path"):
                await service.resolve(str(elsewhere.with_name("other.gguf")))

    async def test_a_load_that_fails_is_told_to_those_who_wait_for_it(
        self, store: Store, mock_clock: MockClock
    ) -> None:
        script = hello(fail_load=("out_of_memory", "too big"))
        async with scripted_service(store, script) as (service, engine):
            with pytest.raises(OutOfMemory, match="too big"):
                await events_of(service.chat(a_job(model="tiny")))
            # And for a while to those who come later, without another try, or a wait for those who use another model.
            engine.script.fail_load = None
            await events_of(service.chat(a_job(model="other")))
            with pytest.raises(OutOfMemory, match="too big"):
                await events_of(service.chat(a_job(model="tiny")))
            assert service.health().model == "other"
            assert len(engine.loads()) == 2
            mock_clock.jump(10)
            assert text_of(await events_of(service.chat(a_job(model="tiny")))) == HELLO

    async def test_a_file_that_was_changed_gets_another_try(self, store: Store, mock_clock: MockClock) -> None:
        path = store.models_dir / "late.gguf"
        path.write_bytes(b"GGUF")
        async with scripted_service(store, hello()) as (service, _):
            for _ in range(2):
                with pytest.raises(ModelFileError, match="ends after 4 bytes"):
                    await events_of(service.chat(a_job(model="late")))
            path.write_bytes((store.models_dir / "tiny.gguf").read_bytes())
            assert text_of(await events_of(service.chat(a_job(model="late")))) == HELLO

    async def test_a_template_that_fails_does_not_cost_the_loaded_model(self, store: Store, tmp_path: Path) -> None:
        broken = tmp_path / "broken.jinja"
        broken.write_text("{{ messages[0].nothing.like.it }}")
        text = (store.models_dir / "tiny.gguf").read_bytes()
        (store.models_dir / "fresh.gguf").write_bytes(text)

        def read_text(model: InstalledModel, settings: Settings) -> ModelText:
            if model.tag == "fresh":
                settings = attrs.evolve(settings, prompt=Prompt(chat_template=str(broken)))
            return read_model_text(model, settings)

        async with scripted_service(store, hello(), read_text=read_text) as (service, engine):
            await events_of(service.chat(a_job()))
            with pytest.raises(TemplateError, match="nothing"):
                await events_of(service.chat(a_job(model="fresh")))
            assert service.health().model == "tiny"
            assert len(engine.loads()) == 1

    async def test_a_file_that_is_no_model_does_not_cost_the_loaded_one(self, store: Store) -> None:
        (store.models_dir / "broken.gguf").write_bytes(b"GGUF")
        async with scripted_service(store, hello()) as (service, engine):
            await events_of(service.chat(a_job()))
            with pytest.raises(Exception, match="broken"):
                await events_of(service.chat(a_job(model="broken")))
            assert service.health().model == "tiny"
            assert len(engine.loads()) == 1

    async def test_a_file_that_breaks_its_reader_breaks_no_more(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with scripted_service(store, hello(), read_text=lambda model, _: {}[model]) as (service, _):
            with pytest.raises(HipfireError, match="could not be loaded"):
                await events_of(service.chat(a_job()))
            assert service.health().status == "ok"
        assert "KeyError" in caplog.text

    async def test_the_model_is_loaded_ahead(self, store: Store) -> None:
        seen = []
        async with scripted_service(store, hello(load_s=0.01)) as (service, engine):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.prewarm)
                await until(lambda: bool(engine.loads()))
                seen.append(service.health())
            seen.append(service.health())
        assert [(health.model, health.loading_model) for health in seen] == [(None, "tiny"), ("tiny", None)]

    async def test_a_failure_to_load_ahead_is_only_logged(self, store: Store, caplog: pytest.LogCaptureFixture) -> None:
        settings = some_settings(serve={"default_model": "nobody"})
        async with scripted_service(store, hello(), settings=settings) as (service, _):
            await service.prewarm()
        assert "nobody" in caplog.text

    async def test_the_loaded_model_is_listed_first(self, store: Store) -> None:
        async with scripted_service(store, hello()) as (service, _):
            assert [entry.id for entry in await service.list_models()] == ["other", "tiny"]
            await events_of(service.chat(a_job(model="tiny")))
            first, second = await service.list_models()
        assert (first.id, first.is_loaded, first.context_length) == ("tiny", True, 256)
        assert (second.id, second.is_loaded) == ("other", False)

    async def test_a_model_nobody_uses_is_unloaded(self, store: Store, patient_clock: MockClock) -> None:
        script = hello(hold_after=1)
        async with scripted_service(store, script, settings=some_settings(serve={"idle_timeout": 4})) as (
            service,
            engine,
        ):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(events_of, service.chat(a_job()))
                await trio.sleep(10)
                assert service.health().model == "tiny"
                script.go.set()
            await trio.sleep(3)
            assert service.health().model == "tiny"
            await trio.sleep(2)
            assert service.health().model is None
            assert isinstance(engine.heard[-1], Unload)
            await events_of(service.chat(a_job()))
            assert service.health().model == "tiny"


class TestQueue:
    async def test_one_at_a_time_the_others_wait_in_turn(self, store: Store) -> None:
        done = []

        async def chat(name: str) -> None:
            await events_of(service.chat(a_job(name)))
            done.append(name)

        async with (
            scripted_service(store, hello(hold_after=1)) as (service, engine),
            trio.open_nursery() as nursery,
        ):
            for n, name in enumerate("abc"):
                nursery.start_soon(chat, name)
                await until(lambda n=n: service.admission.n_running + service.admission.n_waiting == n + 1)
            await until(lambda: len(engine.prompts()) == 1)
            engine.script.go.set()
        assert done == ["a", "b", "c"]

    async def test_a_full_queue_turns_away(self, store: Store) -> None:
        settings = some_settings(serve={"max_queue": 1})
        async with scripted_service(store, hello(hold_after=1), settings=settings) as (service, _):
            async with trio.open_nursery() as nursery:
                for n in range(2):
                    nursery.start_soon(events_of, service.chat(a_job()))
                    await until(lambda n=n: service.admission.n_running + service.admission.n_waiting == n + 1)
                with pytest.raises(ServerBusy):
                    await events_of(service.chat(a_job()))
                nursery.cancel_scope.cancel()
            assert (service.stats.n_failed, service.stats.n_cancelled) == (1, 2)

    async def test_waiting_too_long_is_an_error(self, store: Store, patient_clock: MockClock) -> None:
        settings = some_settings(serve={"queue_timeout_ms": 5000})
        async with (
            scripted_service(store, hello(hold_after=1), settings=settings) as (service, engine),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(events_of, service.chat(a_job()))
            await until(lambda: len(engine.prompts()) == 1)
            with pytest.raises(ServerBusy, match="5 s"):
                await events_of(service.chat(a_job()))
            nursery.cancel_scope.cancel()


async def test_stats_count_by_how_requests_end(store: Store) -> None:
    async with scripted_service(store, hello(n_cached=2)) as (service, _):
        await events_of(service.chat(a_job()))
        with pytest.raises(ModelNotFound):
            await events_of(service.chat(a_job(model="nobody")))
        stats = service.stats
    assert (stats.n_served, stats.n_failed, stats.n_cancelled) == (1, 1, 0)
    assert (stats.n_cache_hits, stats.n_cached_tokens) == (1, 2)
    (speed,) = stats.recent
    assert speed.decode_tok_s == pytest.approx((len(tokens_of(HELLO)) - 1) / 0.020)
