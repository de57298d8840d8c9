"""A Python package index on a loopback socket, for pip: the pages of its simple API and the wheels behind them."""

import hashlib
import io
import threading
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import attrs


def wheel_with(package: str, version: str, members: Mapping[str, bytes]) -> tuple[str, bytes]:
    """A wheel's file name and bytes."""
    name = package.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    files = {
        **members,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return f"{name}-{version}-py3-none-any.whl", out.getvalue()


@attrs.define(kw_only=True)
class PackageIndex:
    """What the index has, and how it misbehaves. `requests` are the paths that were asked for, in order."""

    url: str = ""
    wheels: dict[str, bytes] = attrs.field(factory=dict)
    bodies: dict[str, bytes] = attrs.field(factory=dict)
    """Bytes sent in place of a wheel's own; the page still has the hash of the wheel."""
    cut_after: int | None = None
    """Bytes after which the first answer with a wheel breaks off."""
    stall_after: int | None = None
    """Bytes after which every answer with a wheel waits until the index closes."""
    heeds_range: bool = True
    requests: list[str] = attrs.field(factory=list)
    closing: threading.Event = attrs.field(factory=threading.Event)
    stalled: threading.Event = attrs.field(factory=threading.Event)

    def add(self, package: str, version: str, members: Mapping[str, bytes]) -> str:
        """Publish a wheel; return its file name."""
        name, content = wheel_with(package, version, members)
        self.wheels[name] = content
        return name

    def variables(self, path: str) -> dict[str, str]:
        """An environment in which pip knows this index only."""
        return {
            "PATH": path,
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_INDEX_URL": f"{self.url}/simple",
            "PIP_RESUME_RETRIES": "1",
            "PIP_RETRIES": "0",
        }


@contextmanager
def package_index() -> Iterator[PackageIndex]:
    """An index that serves until the block ends."""
    index = PackageIndex()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.requests.append(self.path)
            parts = Path(self.path).parts
            if parts[1] == "simple":
                _send_page(self, index, parts[2])
            else:
                _send_wheel(self, index, parts[2])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield index
    finally:
        index.closing.set()
        server.shutdown()
        thread.join()
        server.server_close()


def _send_page(handler: BaseHTTPRequestHandler, index: PackageIndex, package: str) -> None:
    links = [
        f'<a href="/files/{name}#sha256={hashlib.sha256(content).hexdigest()}">{name}</a>'
        for name, content in index.wheels.items()
        if name.startswith(package.replace("-", "_") + "-")
    ]
    if not links:
        handler.send_error(404)
        return
    page = f"<!DOCTYPE html><html><body>{''.join(links)}</body></html>".encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "text/html")
    handler.send_header("Content-Length", str(len(page)))
    handler.end_headers()
    handler.wfile.write(page)


def _send_wheel(handler: BaseHTTPRequestHandler, index: PackageIndex, name: str) -> None:
    content = index.bodies.get(name, index.wheels[name])
    wanted = handler.headers.get("Range") if index.heeds_range else None
    start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
    handler.send_response(206 if wanted else 200)
    handler.send_header("Content-Length", str(len(content) - start))
    handler.send_header("Accept-Ranges", "bytes")
    handler.send_header("ETag", '"1"')
    if wanted:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.end_headers()
    body = content[start:]
    if index.cut_after is not None:
        body, index.cut_after = body[: index.cut_after], None
    if index.stall_after is not None:
        handler.wfile.write(body[: index.stall_after])
        handler.wfile.flush()
        index.stalled.set()
        index.closing.wait()
        return
    handler.wfile.write(body)
