"""TLS: the same server behind it, over HTTP/1.1 and HTTP/2, and files that cannot be used."""

import json
import ssl
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
import trio
import trustme
from chats import until
from cryptography.hazmat.primitives import serialization
from quart_trio import QuartTrio
from scripted_engine import Script
from scripted_server import a_chat, scripted_server
from scripted_service import some_settings, tokens_of
from sockets import connected, exchange, serving

from hipfire.catalog.store import Store
from hipfire.config.schema import Serve
from hipfire.errors import ConfigError
from hipfire.server.tls import tls_context
from hipfire.server.transport import Limits


@attrs.frozen(kw_only=True)
class Files:
    """A certificate for localhost and its key, as an authority gave them out."""

    cert: Path
    key: Path
    authority: trustme.CA

    @property
    def context(self) -> ssl.SSLContext:
        context = tls_context(Serve(certfile=str(self.cert), keyfile=str(self.key)))
        assert context is not None
        return context

    @property
    def trusting(self) -> ssl.SSLContext:
        """What a client needs to trust it. A new one each time: httpx changes what it is given."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    folder = tmp_path_factory.mktemp("tls")
    authority = trustme.CA()
    issued = authority.issue_cert("localhost", "127.0.0.1")
    cert, key = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(key))
    return Files(cert=cert, key=key, authority=authority)


class TestServing:
    @pytest.mark.parametrize(("http2", "version"), [(False, "HTTP/1.1"), (True, "HTTP/2")])
    async def test_a_client_that_verifies_gets_its_answers(
        self, store: Store, files: Files, http2: bool, version: str
    ) -> None:
        script = Script(tokens=tokens_of("Hello"))
        async with (
            scripted_server(store, script, tls=files.context) as server,
            httpx.AsyncClient(base_url=server.url, verify=files.trusting, http2=http2) as client,
        ):
            whole = await client.post("/v1/chat/completions", json=a_chat())
            streamed = await client.post("/v1/chat/completions", json=a_chat(stream=True))
            await client.aclose()
        assert (whole.http_version, streamed.http_version) == (version, version)
        assert whole.json()["choices"][0]["message"]["content"] == "Hello"
        assert streamed.text.endswith("data: [DONE]\n\n")

    async def test_a_client_that_goes_stops_the_engine(self, store: Store, files: Files) -> None:
        script = Script(tokens=tokens_of("Hello"), hold_after=1)
        async with scripted_server(store, script, tls=files.context) as server:
            async with connected(server.port) as tcp:
                stream = trio.SSLStream(tcp, files.trusting, server_hostname="localhost")
                body = json.dumps(a_chat(stream=True)).encode()
                head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
                await stream.send_all(head.encode() + body)
                await stream.receive_some()
            await until(lambda: bool(server.engine.cancelled))

    async def test_the_end_of_an_answer_is_said_in_tls_too(self, files: Files) -> None:
        async with serving(app(), tls=files.context) as here, connected(here.port) as tcp:
            stream = trio.SSLStream(tcp, files.trusting, server_hostname="localhost")
            await stream.send_all(b"GET /hi HTTP/1.0\r\n\r\n")
            # A socket that closed without a goodbye would be a BrokenResourceError here.
            assert (await all_of(stream)).endswith(b"\r\n\r\nhello")

    async def test_an_answer_before_the_body_was_read_arrives_whole(self, files: Files) -> None:
        limits = Limits(stall_timeout_s=30, drain_timeout_s=30, linger_s=10)
        async with serving(app(), tls=files.context, limits=limits) as here, connected(here.port) as tcp:
            # Its length says that the answer is whole; TLS's farewell may be lost on a closed end.
            stream = trio.SSLStream(tcp, files.trusting, server_hostname="localhost", https_compatible=True)
            await stream.send_all(b"POST /hi HTTP/1.1\r\nHost: test\r\nContent-Length: 4000000\r\n\r\n")
            await stream.send_all(bytes(4_000_000 - 1))
            assert (await all_of(stream)).endswith(b"hello")

    @pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01"])
    async def test_a_handshake_that_does_not_come_ends_the_connection(self, files: Files, sent: bytes) -> None:
        limits = Limits(stall_timeout_s=30, drain_timeout_s=30, head_timeout_s=0.05)
        async with serving(app(), tls=files.context, limits=limits) as here:
            assert await exchange(here.port, sent) == b""

    async def test_shutdown_does_not_wait_for_one(self, files: Files) -> None:
        async with serving(app(), tls=files.context) as here, connected(here.port) as stream:
            await stream.send_all(b"\x16")
            here.shutdown.set()
            await here.ended.wait()

    async def test_plain_http_gets_no_answer(self, files: Files) -> None:
        async with serving(app(), tls=files.context) as here:
            answer = await exchange(here.port, b"GET /hi HTTP/1.1\r\nHost: test\r\n\r\n")
            assert b"HTTP" not in answer


def app() -> QuartTrio:
    app = QuartTrio("test", static_folder=None)

    @app.route("/hi", methods=["GET", "POST"])
    async def hi() -> str:
        return "hello"

    return app


async def all_of(stream: trio.SSLStream[trio.SocketStream]) -> bytes:
    return b"".join([bytes(chunk) async for chunk in stream])


class TestFiles:
    def test_without_files_there_is_no_tls(self) -> None:
        assert tls_context(Serve()) is None

    @pytest.mark.parametrize(
        ("fields", "message"),
        [
            ({"keyfile": None}, "serve.certfile needs serve.keyfile"),
            ({"certfile": None}, "serve.keyfile needs serve.certfile"),
            ({"certfile": "gone"}, "serve.certfile: cannot read .*gone: No such file"),
            ({"keyfile": "gone"}, "serve.keyfile: cannot read .*gone: No such file"),
            ({"certfile": "text"}, "serve.certfile: there is no certificate in .*text"),
            ({"keyfile": "text"}, "serve.keyfile: there is no private key in .*text"),
            ({"certfile": "damaged"}, "cannot be used"),
            ({"keyfile": "other"}, "serve.keyfile: .*other is not the key of the certificate in"),
            ({"keyfile": "encrypted"}, "serve.keyfile: the key is encrypted .*openssl pkey"),
        ],
    )
    def test_what_cannot_be_used_is_told(
        self, files: Files, tmp_path: Path, fields: dict[str, Any], message: str
    ) -> None:
        (tmp_path / "text").write_text("not what it should be")
        (tmp_path / "damaged").write_text(files.cert.read_text().replace("M", "N", 1))
        trustme.CA().issue_cert("localhost").private_key_pem.write_to_path(str(tmp_path / "other"))
        (tmp_path / "encrypted").write_bytes(encrypted(files.key.read_bytes()))
        paths = {name: value and str(tmp_path / value) for name, value in fields.items()}
        with pytest.raises(ConfigError, match=message):
            tls_context(Serve(**{"certfile": str(files.cert), "keyfile": str(files.key), **paths}))


def encrypted(key: bytes) -> bytes:
    return serialization.load_pem_private_key(key, None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"secret")
    )


async def test_a_key_is_asked_for_over_tls_too(store: Store, files: Files) -> None:
    settings = some_settings(serve={"api_keys": ("k",)})
    async with scripted_server(store, Script(), settings=settings, tls=files.context) as server:
        assert (await server.client.get("/stats")).status_code == 401
        assert (await server.client.get("/stats", headers={"Authorization": "Bearer k"})).status_code == 200
