"""The Hugging Face Hub on a loopback socket: what its API and its file addresses answer, and how that goes wrong."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import attrs

COMMIT = "c0ffee" + "0" * 34


@attrs.define(kw_only=True)
class ModelHub:
    """What the hub has by `owner/repo/path`, and how it misbehaves. `requests` are method, path and range, in order."""

    url: str = ""
    files: dict[str, bytes] = attrs.field(factory=dict)
    gguf: dict[str, object] = attrs.field(factory=dict)
    """What the API tells of a repository's GGUF files."""
    bodies: dict[str, bytes] = attrs.field(factory=dict)
    """Bytes sent in place of a file's own; the headers still tell size and hash of the file."""
    cut_after: int | None = None
    """Bytes after which the first answer with content breaks off."""
    stall_after: int | None = None
    """Bytes after which every answer with content waits until the hub closes."""
    heeds_range: bool = True
    refusal: tuple[int, str] | None = None
    """Status and `X-Error-Code` of every answer."""
    token: str | None = None
    """What must be shown, where the refusal is not for everybody."""
    requests: list[tuple[str, str, str | None]] = attrs.field(factory=list)
    closing: threading.Event = attrs.field(factory=threading.Event)
    stalled: threading.Event = attrs.field(factory=threading.Event)

    def add(self, repo: str, path: str, content: bytes) -> str:
        """Publish a file; return its SHA-256."""
        self.files[f"{repo}/{path}"] = content
        return hashlib.sha256(content).hexdigest()

    @property
    def downloads(self) -> list[tuple[str, str | None]]:
        """The path and range of each request for content."""
        return [(path, wanted) for method, path, wanted in self.requests if method == "GET" and "/resolve/" in path]

    def variables(self, **more: str) -> dict[str, str]:
        """An environment that knows this hub only."""
        return {"HF_ENDPOINT": self.url, **more}


@contextmanager
def model_hub() -> Iterator[ModelHub]:
    """A hub that serves until the block ends."""
    hub = ModelHub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            _answer(self, hub)

        def do_GET(self) -> None:
            _answer(self, hub)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        hub.closing.set()
        server.shutdown()
        thread.join()
        server.socket.close()


def _answer(handler: BaseHTTPRequestHandler, hub: ModelHub) -> None:
    path = handler.path.partition("?")[0]
    hub.requests.append((handler.command, path, handler.headers.get("Range")))
    shown = handler.headers.get("Authorization", "").removeprefix("Bearer ")
    if hub.refusal is not None and not (hub.token and shown == hub.token):
        _refuse(handler, *hub.refusal)
    elif path.startswith("/api/models/"):
        _send_repository(handler, hub, path.removeprefix("/api/models/").partition("/revision/")[0])
    else:
        repo, _, rest = path.removeprefix("/").partition("/resolve/")
        _send_file(handler, hub, repo, f"{repo}/{rest.partition('/')[2]}")


def _refuse(handler: BaseHTTPRequestHandler, status: int, code: str) -> None:
    handler.send_response(status)
    handler.send_header("X-Error-Code", code)
    handler.send_header("Content-Length", "0")
    handler.end_headers()


def _send_repository(handler: BaseHTTPRequestHandler, hub: ModelHub, repo: str) -> None:
    siblings = [
        {
            "rfilename": name.removeprefix(f"{repo}/"),
            "size": len(content),
            "lfs": {"sha256": hashlib.sha256(content).hexdigest(), "size": len(content), "pointerSize": 134},
        }
        for name, content in hub.files.items()
        if name.startswith(f"{repo}/")
    ]
    if not siblings:
        _refuse(handler, 404, "RepoNotFound")
        return
    document = {"id": repo, "sha": COMMIT, "siblings": siblings, "gguf": hub.gguf, "tags": []}
    body = json.dumps(document).encode()
    handler.send_response(200)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _send_file(handler: BaseHTTPRequestHandler, hub: ModelHub, repo: str, name: str) -> None:
    content = hub.files.get(name)
    if content is None:
        known = any(other.startswith(f"{repo}/") for other in hub.files)
        _refuse(handler, 404, "EntryNotFound" if known else "RepoNotFound")
        return
    wanted = handler.headers.get("Range") if hub.heeds_range else None
    start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
    sha256 = hashlib.sha256(content).hexdigest()
    body = hub.bodies.get(name, content)[start:]
    handler.send_response(206 if wanted else 200)
    for header, value in (
        ("X-Repo-Commit", COMMIT), ("X-Linked-Etag", f'"{sha256}"'), ("X-Linked-Size", str(len(content))),
        ("ETag", f'"{sha256}"'), ("Accept-Ranges", "bytes"), ("Content-Length", str(len(body))),
    ):  # fmt: skip
        handler.send_header(header, value)
    if wanted:
        handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
    handler.end_headers()
    if handler.command == "GET":
        _send_body(handler, hub, body)


def _send_body(handler: BaseHTTPRequestHandler, hub: ModelHub, body: bytes) -> None:
    if hub.cut_after is not None:
        handler.wfile.write(body[: hub.cut_after])
        hub.cut_after = None
        handler.close_connection = True
    elif hub.stall_after is not None:
        handler.wfile.write(body[: hub.stall_after])
        handler.wfile.flush()
        hub.stalled.set()
        hub.closing.wait()
        handler.close_connection = True
    else:
        handler.wfile.write(body)
