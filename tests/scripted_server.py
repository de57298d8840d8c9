"""The whole server on a real socket, with a scripted engine behind it."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import attrs
import httpx
import trio
from scripted_engine import Script, ScriptedEngine
from scripted_service import compile_here, scripted_service, some_settings
from sockets import PATIENCE_S, listening_socket

from hipfire.catalog.store import Store
from hipfire.config.schema import Settings
from hipfire.server.app import run_server
from hipfire.service.schema_check import Compile
from hipfire.service.service import Service


@attrs.frozen(kw_only=True, eq=False)
class ScriptedServer:
    port: int
    url: str
    service: Service
    engine: ScriptedEngine
    shutdown: trio.Event
    client: httpx.AsyncClient

    async def chat(self, **fields: object) -> httpx.Response:
        """Post a chat; the message is `hi` unless `messages` says otherwise."""
        return await self.client.post("/v1/chat/completions", json=a_chat(**fields))


def a_chat(**fields: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": "hi"}], **fields}


@asynccontextmanager
async def scripted_server(
    store: Store,
    script: Script,
    *,
    settings: Settings | None = None,
    tls: ssl.SSLContext | None = None,
    patience_s: float = PATIENCE_S,
    compile_schemas: Compile = compile_here,
) -> AsyncIterator[ScriptedServer]:
    """A server on a port of its own, until the block ends. With `tls` its client verifies nothing."""
    settings = settings or some_settings()
    sock = listening_socket()
    port = sock.getsockname()[1]
    url = f"{'http' if tls is None else 'https'}://127.0.0.1:{port}"
    shutdown = trio.Event()
    async with (
        scripted_service(store, script, settings=settings, compile_schemas=compile_schemas) as (service, engine),
        trio.open_nursery() as nursery,
        # Without TLS there is nothing to verify; not reading the certificates is most of a test's time.
        httpx.AsyncClient(base_url=url, timeout=PATIENCE_S, verify=False) as client,
    ):
        await nursery.start(partial(run_server, service, [sock], settings, shutdown, tls=tls))
        with trio.fail_after(patience_s):
            yield ScriptedServer(port=port, url=url, service=service, engine=engine, shutdown=shutdown, client=client)
            await client.aclose()
        nursery.cancel_scope.cancel()
