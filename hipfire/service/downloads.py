"""Models that requests ask for and that are not here yet: one download of each, whoever waits for it.

Knows not where from. A download goes on when those who wait for it are gone, since it may outlast every client's
patience; it ends with the service.
"""

import logging
from collections.abc import Callable

import trio

from hipfire.catalog.registry import Card
from hipfire.errors import HipfireError

log = logging.getLogger("hipfire.service")

Pull = Callable[[Card], None]
"""Brings a model's files; runs in a worker thread, where it must look often whether it was cancelled
(`trio.from_thread.check_cancelled`). Raises HipfireError."""


class _Download:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: HipfireError | None = None


class Downloads:
    """`run` must be running."""

    def __init__(self, pull: Pull) -> None:
        self._pull = pull
        self._nursery: trio.Nursery | None = None
        self._running: dict[str, _Download] = {}

    async def run(self, *, task_status: "trio.TaskStatus[None]" = trio.TASK_STATUS_IGNORED) -> None:
        """Be there for downloads, until cancelled."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    async def bring(self, card: Card) -> None:
        """Wait until a model is here. Raises the error of its download."""
        if self._nursery is None:
            raise RuntimeError("Downloads.run is not running")
        download = self._running.get(card.tag)
        if download is None:
            download = self._running[card.tag] = _Download()
            self._nursery.start_soon(self._run, card, download)
        await download.done.wait()
        if download.error is not None:
            raise download.error

    async def _run(self, card: Card, download: _Download) -> None:
        log.info("a request asks for %s, which is not here: downloading %s MB", card.tag, card.download_nbytes // 10**6)
        try:
            await trio.to_thread.run_sync(self._pull, card)
            log.info("%s is downloaded", card.tag)
        except HipfireError as error:
            log.error("%s could not be downloaded: %s", card.tag, error)
            download.error = error
        finally:
            del self._running[card.tag]
            download.done.set()
