"""The service with a scripted engine and the tiny model's own tokenizer and template."""

import functools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio
from scripted_engine import Script, ScriptedEngine

from hipfire.catalog.registry import Registry
from hipfire.catalog.store import Store
from hipfire.config.schema import Settings
from hipfire.formats.open import open_checkpoint
from hipfire.grammar.check import examine
from hipfire.service.downloads import Pull
from hipfire.service.model_text import read_model_text
from hipfire.service.residency import ReadText
from hipfire.service.schema_check import Compile
from hipfire.service.service import Service
from hipfire.text.tokenizer import Tokenizer

TINY = Path(__file__).resolve().parents[1] / "fixtures" / "tiny-llama" / "model.gguf"


@functools.cache
def tiny_tokenizer() -> Tokenizer:
    with open_checkpoint(TINY) as checkpoint:
        return Tokenizer.from_metadata(checkpoint.metadata)


def tokens_of(text: str) -> list[int]:
    """What a scripted engine must say for this text to come out."""
    return tiny_tokenizer().encode(text)


def models_in(folder: Path, *names: str) -> Store:
    """A folder where the tiny model is to be found under several names."""
    for name in names:
        (folder / f"{name}.gguf").symlink_to(TINY)
    return Store(folder, Registry(cards={}))


def some_settings(**groups: dict[str, Any]) -> Settings:
    """Settings that differ from the built-in ones: serve={"max_queue": 1}. The default model is `tiny`."""
    groups = {**groups, "serve": {"default_model": "tiny", **groups.get("serve", {})}}
    return attrs.evolve(
        Settings(), **{name: attrs.evolve(getattr(Settings(), name), **values) for name, values in groups.items()}
    )


async def compile_here(asked: bytes) -> bytes:
    """What a process of its own would say, without the time that it takes to start one."""
    await trio.lowlevel.checkpoint()
    return json.dumps(list(map(examine, json.loads(asked)))).encode()


@asynccontextmanager
async def scripted_service(
    store: Store,
    script: Script,
    *,
    settings: Settings | None = None,
    draw_seed: int = 4711,
    read_text: ReadText = read_model_text,
    compile_schemas: Compile = compile_here,
    pull: Pull | None = None,
) -> AsyncIterator[tuple[Service, ScriptedEngine]]:
    """A running service, until the block ends."""
    async with trio.open_nursery() as nursery:
        engine = ScriptedEngine(nursery, script)
        service = Service(
            settings=settings or some_settings(),
            catalog=store,
            spawn=engine.spawn,
            draw_seed=lambda: draw_seed,
            read_text=read_text,
            compile_schemas=compile_schemas,
            pull=pull,
        )
        await nursery.start(service.run)
        yield service, engine
        nursery.cancel_scope.cancel()
