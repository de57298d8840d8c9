"""The life of a serve from bound sockets to the last answer, and what its terminal shows of it.

Knows no HTTP: the server is handed the service and the sockets.
"""

import logging
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial

import trio

from hipfire.catalog.store import Store
from hipfire.cli.report import sole_cause
from hipfire.cli.serve_screen import ServeScreen
from hipfire.config.schema import Settings
from hipfire.server.app import run_server
from hipfire.service.engine_process import spawn_engine
from hipfire.service.service import Service

log = logging.getLogger("hipfire.cli")


def serve(
    *,
    settings: Settings,
    store: Store,
    sockets: Sequence[socket.socket],
    prewarm: bool,
    exit_at_once: Callable[[], None],
) -> None:
    """Serve until a signal came and the answers under way are done. A second signal calls `exit_at_once`.

    Raises EngineUnavailable when the engine keeps dying.
    """
    try:
        trio.run(_serve, settings, store, sockets, prewarm, exit_at_once)
    except BaseExceptionGroup as group:
        raise sole_cause(group) from None


async def _serve(
    settings: Settings,
    store: Store,
    sockets: Sequence[socket.socket],
    prewarm: bool,
    exit_at_once: Callable[[], None],
) -> None:
    screen = ServeScreen(settings.serve)
    # What the engine has to say at the info level, the service says too.
    level = settings.log.level
    spawn = partial(spawn_engine, log_level="warning" if level == "info" else level)
    service = Service(settings=settings, catalog=store, spawn=spawn, on_loading=screen.show_loading)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_heed_signals, service, stop, settings.serve.drain_timeout, exit_at_once)
        await nursery.start(service.run)
        async with trio.open_nursery() as serving:
            await serving.start(partial(run_server, service, sockets, settings, stop))
            screen.show_listening()
            if prewarm:
                nursery.start_soon(_prewarm, service, screen)
        nursery.cancel_scope.cancel()


async def _prewarm(service: Service, screen: ServeScreen) -> None:
    with screen.load_bar():
        await service.prewarm()
    if service.resident is not None:
        screen.show_ready(service.resident)


async def _heed_signals(
    service: Service,
    stop: trio.Event,
    drain_timeout_s: float,
    exit_at_once: Callable[[], None],
    *,
    task_status: "trio.TaskStatus[None]",
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                exit_at_once()
            if n_running := service.admission.n_running:
                log.info("stopping; %d under way may take %g s, a second signal ends them", n_running, drain_timeout_s)
            else:
                log.info("stopping")
            stop.set()
