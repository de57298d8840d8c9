"""The one model that is loaded: loads on demand, switches, unloads when idle, loads again after the engine died.

Knows nothing of requests but that they use the model between `acquire` and `release`.
"""

import logging
import math
from collections.abc import Callable
from functools import partial

import attrs
import trio

from hipfire.catalog.model_layers import given_layers
from hipfire.catalog.store import InstalledModel
from hipfire.config.schema import Settings
from hipfire.errors import EngineUnavailable, HipfireError
from hipfire.service.failed_loads import FailedLoads
from hipfire.service.link import EngineLink
from hipfire.service.model_text import ModelText
from hipfire.wire.messages import Load, Loaded

log = logging.getLogger("hipfire.service")

ReadText = Callable[[InstalledModel, Settings], ModelText]
"""Reads what the service needs of a model's file; runs in a worker thread. Raises HipfireError."""

OnLoading = Callable[[str, float], None]
"""Called now and then while a model is loaded, with its tag and the fraction done."""


def ignore_loading(_tag: str, _fraction: float) -> None:
    """Progress that nobody watches."""


@attrs.frozen(kw_only=True, eq=False)
class LoadedModel:
    """`settings` are those of this model: models.toml, its card and its file had their say."""

    model: InstalledModel
    text: ModelText
    settings: Settings
    engine: Loaded


def _are_same(one: InstalledModel, other: InstalledModel) -> bool:
    """Whether two names lead to one model. A file may be several models, each with settings of its own."""
    return (one.tag, one.path) == (other.tag, other.path)


class _Loading:
    """A load under way, that goes on when nobody waits for it any more."""

    def __init__(self, model: InstalledModel, *, again: bool) -> None:
        self.model = model
        self.again = again
        self.done = trio.Event()
        self.error: HipfireError | None = None


class Residency:
    """`run` must be running."""

    def __init__(
        self, link: EngineLink, *, settings: Settings, read_text: ReadText, on_loading: OnLoading = ignore_loading
    ) -> None:
        self._link = link
        self._settings = settings
        self._read_text = read_text
        self._on_loading = on_loading
        self._nursery: trio.Nursery | None = None
        # Held by whoever decides what is loaded: first come, first served, so that no model starves another.
        self._door = trio.Lock()
        self._resident: LoadedModel | None = None
        self._loading: _Loading | None = None
        self._failed = FailedLoads()
        self._load_error: HipfireError | None = None
        self._n_users = 0
        self._unused = trio.Event()
        self._last_used = -math.inf

    @property
    def resident(self) -> LoadedModel | None:
        return self._resident

    @property
    def loading(self) -> InstalledModel | None:
        return self._loading.model if self._loading is not None else None

    @property
    def is_reloading(self) -> bool:
        """Whether the model is being loaded again because the engine died."""
        return self._loading is not None and self._loading.again

    @property
    def load_error(self) -> HipfireError | None:
        """Why the last load failed; None when it did not."""
        return self._load_error

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Be there for loads, until cancelled."""
        self._last_used = trio.current_time()
        async with trio.open_nursery() as self._nursery:
            if self._settings.serve.idle_timeout:
                self._nursery.start_soon(self._unload_when_idle, self._settings.serve.idle_timeout)
            task_status.started()
            await trio.sleep_forever()

    async def acquire(self, wanted: InstalledModel) -> LoadedModel:
        """The model, loaded: now, or once the others are done with the one that is. The caller must `release` it.

        Raises the error of the load, or of one that failed lately.
        """
        self._failed.check(wanted.path)
        async with self._door:
            model = await self._make_resident(wanted)
            self._n_users += 1
            return model

    def release(self) -> None:
        """Give back what `acquire` gave."""
        self._n_users -= 1
        self._last_used = trio.current_time()
        if not self._n_users:
            self._unused.set()
            self._unused = trio.Event()

    def on_engine_death(self) -> None:
        """Nothing is loaded any more; what was, is loaded again."""
        lost, self._resident = self._resident, None
        if lost is not None and self._loading is None:
            self._start_loading(lost.model, again=True)

    async def _make_resident(self, wanted: InstalledModel) -> LoadedModel:
        """Under the door."""
        while True:
            if self._loading is not None:
                loading = self._loading
                await loading.done.wait()
                if loading.error is not None and _are_same(loading.model, wanted):
                    self._raise_unless_retried(loading.error, again=loading.again)
            elif self._resident is not None and _are_same(self._resident.model, wanted):
                return self._resident
            elif self._n_users:
                await self._unused.wait()
            else:
                self._failed.check(wanted.path)
                self._start_loading(wanted, again=False)

    def _raise_unless_retried(self, error: HipfireError, *, again: bool) -> None:
        # Who waited for a model to be loaded after a death had no part in the next death.
        if not (again and isinstance(error, EngineUnavailable)) or self._link.gave_up:
            raise error

    def _start_loading(self, model: InstalledModel, *, again: bool) -> None:
        if self._nursery is None:
            raise RuntimeError("Residency.run is not running")
        self._loading = _Loading(model, again=again)
        self._nursery.start_soon(self._load, self._loading)

    async def _load(self, loading: _Loading) -> None:
        try:
            self._resident = await self._loaded(loading.model)
            log.info("%s is loaded on %s", loading.model.tag, self._resident.engine.device)
        except HipfireError as error:
            text = str(error)
            # Many errors begin with the model that they are of.
            log.error("%s", text if text.startswith(loading.model.tag) else f"{loading.model.tag}: {text}")
            loading.error = error
        except Exception as error:
            # A file can be broken in ways that its readers did not think of: that ends the load, not the server.
            log.error("%s could not be loaded", loading.model.tag, exc_info=error)
            loading.error = HipfireError(f"{loading.model.tag} could not be loaded", hint="the log says why")
        finally:
            self._load_error = loading.error
            if loading.error is not None:
                self._failed.remember(loading.model.path, loading.error)
            self._loading = None
            self._last_used = trio.current_time()
            loading.done.set()

    async def _loaded(self, model: InstalledModel) -> LoadedModel:
        settings = self._settings
        for layer in given_layers(model):
            settings = settings.with_layer(layer)
        # Before the other one is unloaded: a file that cannot be used costs nobody their model.
        text = await trio.to_thread.run_sync(partial(self._read_text, model, settings))
        settings = settings.with_layer(text.recommended)
        await self._unload()
        engine = await self._link.load(
            Load(
                path=str(model.path),
                device=settings.hardware.device,
                n_threads=settings.hardware.threads,
                max_seq=settings.memory.max_seq,
                kv_cache=settings.memory.kv_cache,
                graphs=settings.hardware.graphs,
                max_concurrent=settings.serve.max_concurrent,
                prefix_cache=settings.memory.prefix_cache,
                prefix_cache_nbytes=settings.memory.prefix_cache_bytes,
            ),
            on_progress=lambda progress: self._on_loading(model.tag, progress.fraction),
        )
        return LoadedModel(model=model, text=text, settings=settings, engine=engine)

    async def _unload(self) -> None:
        if self._resident is None:
            return
        self._resident = None
        try:
            await self._link.unload()
        except EngineUnavailable:
            # It died, and what it held with it.
            return

    async def _unload_when_idle(self, timeout_s: float) -> None:
        while True:
            await trio.sleep_until(self._last_used + timeout_s)
            async with self._door:
                if self._n_users or self._loading is not None or self._resident is None:
                    # Nothing to unload: look again a whole timeout later.
                    self._last_used = trio.current_time()
                elif trio.current_time() >= self._last_used + timeout_s:
                    log.info("%s is unloaded after %g s without a request", self._resident.model.tag, timeout_s)
                    await self._unload()
