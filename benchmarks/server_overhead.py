"""What the server adds to each token, from the engine's pipe to the client's socket, in CPU time of its own process.

    python benchmarks/server_overhead.py [--tokens N]

A stand-in for the engine, in a process of its own, writes tokens; a bare client, in another, reads the stream.
`paced` leaves a pause after each token, so that each pays the whole way alone, as in decoding. `flood` writes them as
fast as they are taken.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import attrs
import trio

from hipfire.catalog.registry import Registry
from hipfire.catalog.store import Store
from hipfire.config.schema import Serve, Settings
from hipfire.server.app import run_server
from hipfire.service.service import Service
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import Finished, Generate, Heartbeat, Hello, Load, Loaded, Started, Token

TINY = Path(__file__).resolve().parents[1] / "fixtures" / "tiny-llama" / "model.gguf"
PAUSE_S = 0.001
CONTEXT = 1 << 20
# An ordinary piece of text in the tiny model's vocabulary.
TOKEN = 300


def main() -> None:
    """Measure, or be one of the other processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=3000)
    parser.add_argument("--role", choices=("engine", "client"), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--pause", type=float, default=0.0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.role == "engine":
        be_engine(arguments.pause)
    elif arguments.role == "client":
        be_client(arguments.port, arguments.tokens)
    else:
        for name, pause_s in (("paced", PAUSE_S), ("flood", 0.0)):
            print(f"{name}: {1e6 * trio.run(measure, arguments.tokens, pause_s):.0f} µs of CPU per token")


def be_engine(pause_s: float) -> None:
    """Speak the wire's messages on stdin and stdout; answer with one token over and over."""
    say(Hello(pid=0, version="stand-in"))
    for line in sys.stdin.buffer:
        message = decode(line)
        if isinstance(message, Load):
            say(
                Loaded(
                    path=message.path, architecture="llama", device="none", native=False, n_vocab=512,
                    context_length=CONTEXT, kv_cache="none", memory_nbytes=0, load_ms=0.0,
                )
            )  # fmt: skip
        elif isinstance(message, Generate):
            say(Started(id=message.id, n_cached=0))
            token = Token(id=message.id, token=TOKEN)
            for _ in range(message.max_tokens):
                say(token)
                if pause_s:
                    time.sleep(pause_s)
            say(
                Finished(
                    id=message.id, reason="length", n_prompt=len(message.prompt), n_cached=0,
                    n_generated=message.max_tokens, prompt_ms=1.0, decode_ms=1.0,
                )
            )  # fmt: skip
        say(Heartbeat(busy_s=0.0))


def say(message: Hello | Loaded | Started | Token | Finished | Heartbeat) -> None:
    sys.stdout.buffer.write(encode(message))
    sys.stdout.buffer.flush()


def be_client(port: int, n_tokens: int) -> None:
    """Ask for a stream of so many tokens and read it to its end."""
    chat = {"messages": [{"role": "user", "content": "hi"}], "stream": True, "max_tokens": n_tokens}
    body = json.dumps(chat).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}"
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(head.encode() + b"\r\n\r\n" + body)
        tail = b""
        while data := connection.recv(1 << 16):
            tail = (tail + data)[-64:]
    if b"data: [DONE]" not in tail:
        raise SystemExit(f"the stream ended with {tail!r}")


async def measure(n_tokens: int, pause_s: float) -> float:
    """Seconds of this process's CPU per token."""
    settings = Settings(serve=Serve(default_model="tiny"))
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
            await run_client(port, 100)
            before = time.process_time()
            await run_client(port, n_tokens)
            spent = time.process_time() - before
            nursery.cancel_scope.cancel()
    return spent / n_tokens


async def spawn_engine(pause_s: float) -> trio.Process:
    command = [sys.executable, __file__, "--role", "engine", "--pause", str(pause_s)]
    return await trio.lowlevel.open_process(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


async def run_client(port: int, n_tokens: int) -> None:
    await trio.run_process(
        [sys.executable, __file__, "--role", "client", "--port", str(port), "--tokens", str(n_tokens)]
    )


if __name__ == "__main__":
    main()
