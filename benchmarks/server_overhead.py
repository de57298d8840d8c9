"""What the server adds to each token, from the engine's pipe to the client's socket.

    python benchmarks/server_overhead.py [--tokens N] [--llama-server PATH]

A stand-in for the engine, in a process of its own, writes tokens; bare clients, in another, read the streams. `paced`
leaves a pause after each token, so that each pays the whole way alone, as in decoding; `flood` writes them as fast as
they are taken; the last runs have 32 streams at a time. The costs are CPU time of the server's process.

`--llama-server` measures llama.cpp's server beside it, on the same tiny model: there the CPU time has that model's
arithmetic in it, next to nothing, and `paced` cannot be had, since nobody can slow its model down.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path

import attrs
import trio

from hipfire.catalog.registry import Registry
from hipfire.catalog.store import Store
from hipfire.config.schema import Serve, Settings
from hipfire.server.app import run_server
from hipfire.service.service import Service

HERE = Path(__file__).resolve().parent
TINY = HERE.parent / "fixtures" / "tiny-llama" / "model.gguf"
PAUSE_S = 0.001
N_STREAMS = 32
WARM_UP_TOKENS = 100
START_TIMEOUT_S = 60.0


@attrs.frozen(kw_only=True)
class Figures:
    """`cpu_s` of the server, and what went by on the clock, for so many tokens of all streams."""

    n_tokens: int
    cpu_s: float
    wall_s: float

    def __str__(self) -> str:
        return f"{1e6 * self.cpu_s / self.n_tokens:6.0f} µs of CPU a token, {self.n_tokens / self.wall_s:7.0f} tokens/s"


def main() -> None:
    """Measure, or be the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=3000, help="of all streams together")
    parser.add_argument("--llama-server", type=Path, help="llama.cpp's server, to be measured too")
    parser.add_argument("--clients", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.clients:
        be_clients(arguments.port, arguments.clients, arguments.tokens // arguments.clients)
        return
    runs = (
        ("paced, 1 stream", PAUSE_S, 1),
        ("flood, 1 stream", 0.0, 1),
        (f"flood, {N_STREAMS} streams", 0.0, N_STREAMS),
    )
    for name, pause_s, n_streams in runs:
        print(f"hipfire       {name:18} {trio.run(measure, arguments.tokens, pause_s, n_streams)}", flush=True)
        if arguments.llama_server is not None and not pause_s:
            figures = measure_llama_server(arguments.llama_server, arguments.tokens, n_streams)
            print(f"llama-server  {name:18} {figures}", flush=True)


def be_clients(port: int, n_streams: int, n_tokens: int) -> None:
    """Ask for so many streams of so many tokens at once, read them to their ends, and print how long that took."""
    failures: list[str] = []
    began_at = time.perf_counter()
    threads = [threading.Thread(target=read_stream, args=(port, n_tokens, failures)) for _ in range(n_streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise SystemExit(failures[0])
    print(time.perf_counter() - began_at)


def read_stream(port: int, n_tokens: int, failures: list[str]) -> None:
    # What hipfire does not know it ignores; llama-server would end where the tiny model's babble does.
    chat = {
        "messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": n_tokens, "ignore_eos": True,
    }  # fmt: skip
    body = json.dumps(chat).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        tail = b""
        while data := connection.recv(1 << 16):
            tail = (tail + data)[-64:]
    if b"data: [DONE]" not in tail:
        failures.append(f"a stream ended with {tail!r}")


async def measure(n_tokens: int, pause_s: float, n_streams: int) -> Figures:
    """hipfire, in this process."""
    settings = Settings(serve=Serve(default_model="tiny", max_concurrent=n_streams))
    settings = attrs.evolve(settings, generation=attrs.evolve(settings.generation, repeat_penalty=1.0))
    with tempfile.TemporaryDirectory() as folder, socket.socket() as sock:
        (Path(folder) / "tiny.gguf").symlink_to(TINY)
        sock.bind(("127.0.0.1", 0))
        port = sock.getsockname()[1]
        service = Service(
            settings=settings, catalog=Store(Path(folder), Registry(cards={})), spawn=partial(spawn_engine, pause_s)
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(service.run)
            await nursery.start(partial(run_server, service, [sock], settings, trio.Event()))
            # Load, and warm everything up.
            await trio.run_process(clients(port, n_streams, WARM_UP_TOKENS * n_streams), capture_stdout=True)
            before_s = time.process_time()
            done = await trio.run_process(clients(port, n_streams, n_tokens), capture_stdout=True)
            cpu_s = time.process_time() - before_s
            nursery.cancel_scope.cancel()
    return Figures(n_tokens=n_tokens, cpu_s=cpu_s, wall_s=float(done.stdout))


async def spawn_engine(pause_s: float) -> trio.Process:
    command = [sys.executable, str(HERE / "stand_in_engine.py"), str(pause_s)]
    return await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def clients(port: int, n_streams: int, n_tokens: int) -> list[str]:
    """The command of a process that reads the streams."""
    own = [sys.executable, __file__, "--clients", str(n_streams)]
    return [*own, "--port", str(port), "--tokens", str(n_tokens)]


def measure_llama_server(program: Path, n_tokens: int, n_streams: int) -> Figures:
    """llama.cpp's server, as a child of this process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    n_context = n_streams * (n_tokens // n_streams + 256)
    command: list[str | Path] = [program, "-m", TINY, "--host", "127.0.0.1", "--port", str(port), "-t", "1"]
    command += ["-np", str(n_streams), "-c", str(n_context)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until(lambda: is_healthy(port))
            subprocess.run(clients(port, n_streams, WARM_UP_TOKENS * n_streams), check=True, capture_output=True)
            before_s = cpu_time_of(process.pid)
            done = subprocess.run(clients(port, n_streams, n_tokens), check=True, capture_output=True)
            cpu_s = cpu_time_of(process.pid) - before_s
            return Figures(n_tokens=n_tokens, cpu_s=cpu_s, wall_s=float(done.stdout))
        finally:
            process.kill()


def cpu_time_of(pid: int) -> float:
    """Seconds of CPU that a running process has used: fields 14 and 15 of its stat, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_healthy(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as reply:
            return bool(reply.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit("llama-server does not come up")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
