"""Each model answers with its own settings: models.toml before config.toml before card before file."""

from pathlib import Path
from typing import Any

import attrs
from chats import a_job, events_of, hello
from scripted_service import scripted_service, some_settings, tiny_tokenizer

from hipfire.catalog.registry import Registry
from hipfire.catalog.store import InstalledModel, Store
from hipfire.config.own_models import read_own_models
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.service.model_text import ModelText, read_model_text
from hipfire.service.request import ChatJob, Message, SamplingWishes
from hipfire.wire.messages import Load

TINY = Path(__file__).parents[2] / "fixtures" / "tiny-llama" / "model.gguf"

MODELS = f"""
[model.tiny]
aliases = ["t"]
memory.max_seq = 700
generation.temperature = 0.1
generation.top_k = 1

[model.writer]
path = "{TINY}"
generation.temperature = 0.9
prompt.system = "Write."

[model.editor]
path = "{TINY}"
"""


def store_in(folder: Path) -> Store:
    (folder / "tiny.gguf").symlink_to(TINY)
    models_file = folder / "models.toml"
    models_file.write_text(MODELS)
    return Store(folder, Registry(cards={}), read_own_models(models_file))


def set_values(**values: Any) -> Settings:
    source = Source(Origin.GLOBAL, "config.toml:1")
    return some_settings().replaced({f"generation.{name}": Sourced(value, source) for name, value in values.items()})


async def test_a_model_s_table_holds_for_that_model_alone(tmp_path: Path) -> None:
    settings = set_values(temperature=0.5, top_p=0.6)
    async with scripted_service(store_in(tmp_path), hello(), settings=settings) as (service, engine):
        for name in ("t", "writer"):
            await events_of(service.chat(a_job(model=name)))
        tiny, writer = engine.prompts()
        loads = [message for message in engine.heard if isinstance(message, Load)]
    assert (tiny.sampling.temperature, tiny.sampling.top_k, tiny.sampling.top_p) == (0.1, 1, 0.6)
    assert (writer.sampling.temperature, writer.sampling.top_k, writer.sampling.top_p) == (0.9, 20, 0.6)
    # `some_settings` leaves the context open.
    assert [load.max_seq for load in loads] == [700, None]


async def test_a_file_that_is_two_models_is_loaded_for_each(tmp_path: Path) -> None:
    async with scripted_service(store_in(tmp_path), hello()) as (service, engine):
        for name in ("editor", "writer", "writer"):
            with await service.open_chat(a_job(model=name)) as chat:
                await chat.start()
                assert chat.model == name
        assert [entry.id for entry in await service.list_models()] == ["writer", "editor", "tiny"]
    assert len([message for message in engine.heard if isinstance(message, Load)]) == 2


async def test_a_request_beats_every_setting(tmp_path: Path) -> None:
    async with scripted_service(store_in(tmp_path), hello()) as (service, engine):
        await events_of(service.chat(a_job(model="t", sampling=SamplingWishes(temperature=0.2))))
        (prompt,) = engine.prompts()
    assert (prompt.sampling.temperature, prompt.sampling.top_k) == (0.2, 1)


async def test_the_file_s_own_recommendation_is_weaker_than_what_was_set(tmp_path: Path) -> None:
    source = Source(Origin.MODEL_FILE, "tiny.gguf")

    def read_text(model: InstalledModel, settings: Settings) -> ModelText:
        recommended = {f"generation.{name}": Sourced(0.25, source) for name in ("temperature", "top_p", "min_p")}
        return attrs.evolve(read_model_text(model, settings), recommended=recommended)

    settings = set_values(top_p=0.6)
    async with scripted_service(store_in(tmp_path), hello(), settings=settings, read_text=read_text) as (
        service,
        engine,
    ):
        await events_of(service.chat(a_job(model="tiny")))
        (prompt,) = engine.prompts()
    assert (prompt.sampling.temperature, prompt.sampling.top_p, prompt.sampling.min_p) == (0.1, 0.6, 0.25)


async def test_empty_lines_are_kept_unless_the_setting_joins_them(tmp_path: Path) -> None:
    job = ChatJob(model=None, messages=(Message(role="user", content="one\n\n\n\ntwo\n\nthree"),))
    texts = []
    for normalize in (False, True):
        settings = some_settings(prompt={"normalize": normalize})
        folder = tmp_path / str(normalize)
        folder.mkdir()
        async with scripted_service(store_in(folder), hello(), settings=settings) as (service, engine):
            await events_of(service.chat(job))
            (prompt,) = engine.prompts()
        texts.append(b"".join(map(tiny_tokenizer().token_bytes, prompt.prompt)))
    assert b"one\n\n\n\ntwo\n\nthree" in texts[0]
    assert b"one\n\ntwo\n\nthree" in texts[1]
