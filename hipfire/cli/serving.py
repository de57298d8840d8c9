"""The life of a serve from bound sockets to the last answer, and what its terminal shows of it.

Knows no HTTP: the server is handed the service and the sockets.
"""

import logging
import signal
import socket
import ssl
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import attrs
import trio

from hipfire.catalog.store import Store
from hipfire.cli.report import sole_cause
from hipfire.cli.serve_screen import ServeLog, ServeScreen
from hipfire.config.schema import Settings
from hipfire.server.app import run_server
from hipfire.service.downloads import Pull
from hipfire.service.engine_process import spawn_engine
from hipfire.service.service import Service

log = logging.getLogger("hipfire.cli")

_SWITCH_INTERVAL_S = 0.0005


@attrs.frozen(kw_only=True)
class Setup:
    """What a serve is made of, and whom it tells how it goes. `pull` is for models that requests ask for.

    `prewarm` loads the model at once; `on_prewarmed` is then told whether that went well, and whoever it tells ends a
    serve that `ends_unless_loaded`. `on_loading` hears of every load, with the model's tag and the fraction done.
    `exit_at_once` does not return.
    """

    settings: Settings
    store: Store
    home: Path
    pull: Pull
    sockets: Sequence[socket.socket]
    tls: ssl.SSLContext | None
    prewarm: bool
    ends_unless_loaded: bool
    stop_with: str
    on_listening: Callable[[], None]
    on_loading: Callable[[str, float], None]
    on_stopping: Callable[[], None]
    on_prewarmed: Callable[[bool], None]
    exit_at_once: Callable[[], None]


def serve(setup: Setup) -> None:
    """Serve until a signal came and the answers under way are done. A second signal calls `exit_at_once`.

    Raises EngineUnavailable when the engine keeps dying.
    """
    # While a worker thread reads a model's text or renders a prompt, the loop must wait this long for Python's lock
    # each time it wakes up. With Python's own 5 ms, /health would take three times as long as it may.
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    try:
        trio.run(_serve, setup)
    except BaseExceptionGroup as group:
        raise sole_cause(group) from None


async def _serve(setup: Setup) -> None:
    settings = setup.settings
    screen: ServeScreen | ServeLog
    if settings.log.format == "json":
        screen = ServeLog(settings.serve)
    else:
        screen = ServeScreen(settings.serve, stop_with=setup.stop_with)

    def on_loading(tag: str, fraction: float) -> None:
        screen.show_loading(tag, fraction)
        setup.on_loading(tag, fraction)

    # What the engine has to say at the info level, the service says too.
    level = settings.log.level
    spawn = partial(spawn_engine, "warning" if level == "info" else level, setup.home, log_format=settings.log.format)
    service = Service(settings=settings, catalog=setup.store, spawn=spawn, on_loading=on_loading, pull=setup.pull)
    stop = trio.Event()
    async with trio.open_nursery() as nursery:
        await nursery.start(_heed_signals, service, stop, setup)
        await nursery.start(service.run)
        async with trio.open_nursery() as serving:
            await serving.start(partial(run_server, service, setup.sockets, settings, stop, tls=setup.tls))
            screen.show_listening()
            setup.on_listening()
            if setup.prewarm:
                nursery.start_soon(_prewarm, service, screen, setup)
        nursery.cancel_scope.cancel()


async def _prewarm(service: Service, screen: ServeScreen | ServeLog, setup: Setup) -> None:
    with screen.load_bar():
        await service.prewarm()
    if service.resident is not None:
        screen.show_ready(service.resident)
    elif not setup.ends_unless_loaded:
        log.info("the server stays up, and requests for the model try again")
    setup.on_prewarmed(service.resident is not None)


async def _heed_signals(
    service: Service,
    stop: trio.Event,
    setup: Setup,
    *,
    task_status: "trio.TaskStatus[None]",
) -> None:
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        task_status.started()
        async for _ in signals:
            if stop.is_set():
                setup.exit_at_once()
            setup.on_stopping()
            if n_running := service.admission.n_running:
                drain_s = setup.settings.serve.drain_timeout
                log.info("stopping; %d under way may take %g s, a second signal ends them", n_running, drain_s)
            else:
                log.info("stopping")
            stop.set()
