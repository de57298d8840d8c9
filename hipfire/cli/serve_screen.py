"""What a serve shows to the person who started it, besides its log: where it is, how far the load is, how to try it."""

import logging
import shlex
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from hipfire import __version__
from hipfire.cli.load_bar import LoadBar
from hipfire.config.schema import Serve
from hipfire.lifecycle.endpoint import endpoint_of
from hipfire.service.residency import LoadedModel

log = logging.getLogger("hipfire.cli")


class ServeScreen:
    """Writes to stderr. A bar is shown on terminals only."""

    def __init__(self, serve: Serve, *, stop_with: str) -> None:
        # No highlighting and no markup: a path or an address is no place for colours.
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        endpoint = endpoint_of(serve)
        self._url = endpoint.url
        # As a shell takes it, and without the key: a terminal is no place for secrets.
        self._curl = "curl" if endpoint.certfile is None else f"curl --cacert {shlex.quote(endpoint.certfile)}"
        self._key_header = " -H 'Authorization: Bearer KEY'" if serve.api_keys else ""
        self._stop_with = stop_with
        self._bar: LoadBar | None = None

    def show_listening(self) -> None:
        self._console.print(f"hipfire {__version__} listens on {self._url}", style="bold")

    @contextmanager
    def load_bar(self) -> Iterator[None]:
        """A bar for the loads in the block."""
        with LoadBar(self._console) as bar:
            self._bar = bar
            try:
                yield
            finally:
                self._bar = None

    def show_loading(self, tag: str, fraction: float) -> None:
        """Note how far a load is; without a bar nothing is shown."""
        if self._bar is not None:
            self._bar.show(tag, fraction)

    def show_ready(self, loaded: LoadedModel) -> None:
        """Say what is loaded, and how to try it."""
        engine = loaded.engine
        self._console.print(
            f"""
  {loaded.model.tag} is ready

  device   {engine.device}
  context  {engine.context_length} tokens ({engine.kv_cache} KV cache)
  memory   up to {engine.memory_nbytes / 1e6:,.0f} MB, as conversations are kept
  API      {self._url}/v1 (OpenAI's)
  try it   {self._curl} {self._url}/v1/chat/completions{self._key_header} -H 'Content-Type: application/json' \\
             -d '{{"messages": [{{"role": "user", "content": "Hello!"}}]}}'
  stop it  {self._stop_with}
"""
        )


class ServeLog:
    """The same where stderr is for programs, `log.format = "json"`: log lines, and no bar."""

    def __init__(self, serve: Serve) -> None:
        self._url = endpoint_of(serve).url

    def show_listening(self) -> None:
        log.info("hipfire %s listens on %s", __version__, self._url, extra={"fields": {"url": self._url}})

    @contextmanager
    def load_bar(self) -> Iterator[None]:
        yield

    def show_loading(self, tag: str, fraction: float) -> None:
        """Nothing: a log has no use for progress."""

    def show_ready(self, loaded: LoadedModel) -> None:
        engine = loaded.engine
        fields = {
            "model": loaded.model.tag,
            "device": engine.device,
            "context_length": engine.context_length,
            "memory_bytes": engine.memory_nbytes,
        }
        log.info("%s is ready", loaded.model.tag, extra={"fields": fields})
