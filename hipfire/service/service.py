"""Answers chats with the model that they ask for: queue, model, prompt, engine, text. Knows no HTTP.

A chat runs in its caller's scope: cancelling the caller, at whatever point, frees its place and stops the engine.
"""

import logging
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import attrs
import trio

from hipfire.catalog.model_layers import check_chats
from hipfire.catalog.registry import Card, default_model
from hipfire.catalog.store import InstalledModel, Listing
from hipfire.config.schema import Settings
from hipfire.errors import HipfireError, ModelNotFound
from hipfire.service.admission import Admission
from hipfire.service.chat import Chat
from hipfire.service.downloads import Downloads, Pull
from hipfire.service.engine_process import Spawn, spawn_engine
from hipfire.service.events import ChatEvent
from hipfire.service.link import EngineLink
from hipfire.service.listing import ModelEntry, list_models
from hipfire.service.model_text import read_model_text
from hipfire.service.request import ChatJob
from hipfire.service.residency import LoadedModel, OnLoading, ReadText, Residency, ignore_loading
from hipfire.service.schema_check import Compile, SchemaCheck, compile_apart
from hipfire.service.stats import Stats

log = logging.getLogger("hipfire.service")


def _draw_seed() -> int:
    return secrets.randbits(64)


def _is_here(model: InstalledModel) -> bool:
    return model.path.exists()


class Catalog(Protocol):
    """What the service needs of `catalog.store.Store`. Looking up and listing read files."""

    def resolve(self, name: str, *, allow_paths: bool = True) -> InstalledModel: ...

    def card_of(self, name: str) -> Card | None: ...

    def path_of(self, card: Card) -> Path: ...

    def list_installed(self) -> list[Listing]: ...


@attrs.frozen(kw_only=True)
class Health:
    """`status` is ok, restarting or unhealthy. `native` is None as long as no model was loaded."""

    status: str
    model: str | None
    loading_model: str | None
    native: bool | None


class Service:
    """`run` must be running."""

    def __init__(
        self,
        *,
        settings: Settings,
        catalog: Catalog,
        spawn: Spawn = spawn_engine,
        read_text: ReadText = read_model_text,
        draw_seed: Callable[[], int] = _draw_seed,
        on_loading: OnLoading = ignore_loading,
        compile_schemas: Compile = compile_apart,
        pull: Pull | None = None,
    ) -> None:
        self.stats = Stats()
        self.admission = Admission(
            max_concurrent=settings.serve.max_concurrent,
            max_queue=settings.serve.max_queue,
            queue_timeout_s=settings.serve.queue_timeout_ms / 1000,
        )
        self.failed = trio.Event()
        """Set when the engine keeps dying and was given up."""
        self._settings = settings
        self._catalog = catalog
        self._draw_seed = draw_seed
        self._schemas = SchemaCheck(compile_schemas)
        self._downloads = Downloads(pull) if pull is not None and settings.serve.allow_request_pull else None
        self._link = EngineLink(spawn, on_death=self._on_engine_death, on_given_up=self.failed.set)
        self._residency = Residency(self._link, settings=settings, read_text=read_text, on_loading=on_loading)

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Keep an engine, until cancelled."""
        self.stats.started_at = trio.current_time()
        async with trio.open_nursery() as nursery:
            await nursery.start(self._residency.run)
            if self._downloads is not None:
                await nursery.start(self._downloads.run)
            nursery.start_soon(self._link.run)
            task_status.started()

    def _on_engine_death(self) -> None:
        self._residency.on_engine_death()

    @property
    def resident(self) -> LoadedModel | None:
        """The model that is loaded."""
        return self._residency.resident

    @property
    def load_error(self) -> HipfireError | None:
        """Why the last load failed; None when it did not."""
        return self._residency.load_error

    def health(self) -> Health:
        """How things are, without a look at the engine."""
        resident, loading = self._residency.resident, self._residency.loading
        status = "ok"
        if self._link.gave_up:
            status = "unhealthy"
        elif self._link.is_restarting or self._residency.is_reloading:
            status = "restarting"
        return Health(
            status=status,
            model=resident.model.tag if resident is not None else None,
            loading_model=loading.tag if loading is not None else None,
            native=resident.engine.native if resident is not None else None,
        )

    async def list_models(self) -> list[ModelEntry]:
        """The models that can be used, the loaded one first."""
        return await trio.to_thread.run_sync(
            lambda: list_models(self._catalog.list_installed(), self._residency.resident)
        )

    async def resolve(self, name: str | None) -> InstalledModel:
        """The model that a request names, or that requests get which name none.

        Where requests may download it may be one that is not here yet: see `bring`. Raises ModelNotFound, and
        UnsupportedFile or Unsupported for one that would be no use here.
        """
        resident = self._residency.resident
        current = resident.model if resident is not None else self._residency.loading
        if current is not None and name in (None, current.tag):
            return current
        return await trio.to_thread.run_sync(self._look_up, name)

    def _look_up(self, name: str | None) -> InstalledModel:
        default = default_model(self._settings.serve.default_model)
        if name is None:
            return self._catalog.resolve(default)
        try:
            return self._catalog.resolve(name, allow_paths=self._settings.serve.allow_request_paths)
        except ModelNotFound:
            # What the server itself was started with may be named by its path, also while it is unloaded.
            with suppress(ModelNotFound):
                if (model := self._catalog.resolve(default)).tag == name:
                    return model
            card = self._catalog.card_of(name) if self._downloads is not None else None
            if card is None or card.note is not None:
                raise
            card.check_pullable()
            model = InstalledModel(tag=card.tag, path=self._catalog.path_of(card), card=card)
            check_chats(model, self._settings)
            return model

    async def bring(self, model: InstalledModel) -> InstalledModel:
        """The model as it is once it is here, downloaded if `resolve` found that it is not. Raises DownloadError."""
        if self._downloads is None or model.card is None or _is_here(model):
            return model
        await self._downloads.bring(model.card)
        return await trio.to_thread.run_sync(self._catalog.resolve, model.tag)

    async def prewarm(self) -> None:
        """Load the default model. A failure is logged, and the first request tries again."""
        try:
            wanted = await self.resolve(None)
        except HipfireError as error:
            log.error("the default model cannot be loaded: %s", error)
            return
        # The residency logs the failure of a load.
        with suppress(HipfireError):
            await self._residency.acquire(wanted)
            self._residency.release()

    def stop_answering(self) -> None:
        """Fail every request that waits or runs, and those to come: the server is going down."""
        self.admission.close()
        self._link.fail_all("the server is shutting down")

    async def open_chat(self, job: ChatJob) -> Chat:
        """A chat that is to be started, and closed in any case.

        Raises ModelNotFound, and InvalidRequest for a schema that is too much, before the chat waits for others.
        """
        tally = self.stats.count()
        try:
            verdict = await self._schemas.check(job)
            model = await self.resolve(job.model)
        except HipfireError:
            tally.failed()
            raise
        return Chat(
            job,
            model,
            admission=self.admission,
            bring=self.bring,
            residency=self._residency,
            link=self._link,
            tally=tally,
            draw_seed=self._draw_seed,
            verdict=verdict,
        )

    async def chat(self, job: ChatJob) -> AsyncGenerator[ChatEvent, None]:
        """All of a chat. Raises HipfireError's subclasses; may be left at any point, if it is closed then."""
        with await self.open_chat(job) as chat:
            async for event in await chat.start():
                yield event
