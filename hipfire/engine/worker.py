"""The engine as a process, `python -m hipfire.engine.worker [LEVEL [FORMAT [MARK]]]`: messages on stdin and stdout.

It logs to stderr, in lines of text or of JSON. Four threads, so that none waits for another: one reads, one runs the
engine, one writes (and sends the heartbeat), and the main one waits for the end. The process ends at once when its
stdin does, whatever it is doing: whoever started it is gone, or wants it gone, and the memory of a process needs no
tidying. Ctrl-C is for the server, which decides.

Knows nothing of what the messages mean, nor of the mark, which tells others whose engine it is.
"""

import logging
import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO, get_args

from hipfire import __version__
from hipfire.engine.engine import Engine
from hipfire.engine.inbox import Inbox
from hipfire.engine.loader import Loader
from hipfire.errors import DeviceLost, WireError
from hipfire.log_lines import JsonLines
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import FromEngine, Heartbeat, Hello, ToEngine

log = logging.getLogger("hipfire.engine")

HEARTBEAT_S = 1.0

_STACK_NBYTES = 64 << 20
"""Of each thread. Grammars are compiled recursively, and what passed the server's check must not end the engine."""


class Worker:
    """An engine between two binary streams. `run` returns when stdin ends (0) or something is broken (1).

    Before it does, it waits `grace_s` for its threads to end as well. A process that ends with it needs none of that.
    """

    def __init__(
        self,
        *,
        stdin: BinaryIO,
        stdout: BinaryIO,
        loader: Loader,
        clock: Callable[[], float] = time.monotonic,
        heartbeat_s: float = HEARTBEAT_S,
        grace_s: float = 0.0,
    ) -> None:
        self._stdin = stdin
        self._stdout = stdout
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._grace_s = grace_s
        self._inbox = Inbox()
        # Without a bound: a server that reads slowly must not hold up the engine, and an answer's length is bounded.
        self._outbox: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self._engine = Engine(self._inbox, self._outbox.put, loader=loader, clock=clock)
        self._ended = threading.Event()
        self._status = 0

    def run(self) -> int:
        self._outbox.put(Hello(pid=os.getpid(), version=__version__))
        # Daemon threads: a read, a write or a load cannot be called off.
        threads = [
            threading.Thread(target=self._run_thread, args=(body,), name=body.__name__.strip("_"), daemon=True)
            for body in (self._read, self._write, self._run_engine)
        ]
        for thread in threads:
            thread.start()
        self._ended.wait()
        self._inbox.close()
        self._outbox.put(None)
        deadline = time.monotonic() + self._grace_s
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0.0))
        return self._status

    def _run_thread(self, body: Callable[[], int]) -> None:
        """Run a thread's body. Its end is the worker's, with the status that it returns; the first one counts."""
        status = 1
        try:
            status = body()
        except Exception:
            # The last chance to say anything of a bug: the process ends without waiting for the interpreter.
            log.exception("the engine has a fault and ends")
        finally:
            if not self._ended.is_set():
                self._status = status
                self._ended.set()

    def _read(self) -> int:
        try:
            for line in self._stdin:
                if not line.endswith(b"\n"):
                    # Whoever wrote it died over it: this is the end.
                    break
                message = decode(line)
                if not isinstance(message, _TO_ENGINE):
                    raise WireError(f"a {type(message).__name__} is not for the engine")
                self._inbox.put(message)
        except WireError as error:
            # What it asked for is unknown, so it cannot be answered: only the end is an answer.
            log.error("%s", error)
            return 1
        return 0

    def _run_engine(self) -> int:
        try:
            self._engine.run()
        except DeviceLost as error:
            # Only a new process gets a device that works again.
            log.error("%s", error)
            return 1
        return 0

    def _write(self) -> int:
        try:
            self._write_until_end()
        except OSError as error:
            log.error("nobody reads what the engine says: %s", error)
        return 0

    def _write_until_end(self) -> None:
        """Write what there is to say, and a heartbeat when it is due, until None is to be said."""
        beat_at = self._clock() + self._heartbeat_s
        while None not in (messages := self._wait_for_messages(beat_at - self._clock())):
            now = self._clock()
            if now >= beat_at:
                since = self._engine.busy_since
                messages.append(Heartbeat(busy_s=0.0 if since is None else max(now - since, 0.0)))
                beat_at = now + self._heartbeat_s
            self._stdout.write(b"".join(encode(message) for message in messages if message is not None))
            self._stdout.flush()

    def _wait_for_messages(self, timeout_s: float) -> list[FromEngine | None]:
        """Everything that is to be said, once there is something; nothing after the timeout."""
        messages: list[FromEngine | None] = []
        try:
            messages.append(self._outbox.get(timeout=max(timeout_s, 0.0)))
            while True:
                messages.append(self._outbox.get_nowait())
        except queue.Empty:
            return messages


_TO_ENGINE = get_args(ToEngine)


class _OneLine(logging.Formatter):
    """`LEVEL message`, one line whatever the message holds; a bug's traceback follows on lines of its own."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return f"{record.levelname} {record.getMessage()}".replace("\n", "\\n")


def _take_stdout() -> BinaryIO:
    """The pipe that stdout is; what anything else prints from now on, native code too, goes to stderr."""
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def main() -> None:
    # Ctrl-C in a terminal reaches every process of the group; the server lets answers in flight finish.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Not for Python to handle: it would wait for native code.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    level = sys.argv[1] if len(sys.argv) > 1 else "info"
    log_format = sys.argv[2] if len(sys.argv) > 2 else "text"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if log_format == "json" else _OneLine())
    logging.basicConfig(level=level.upper(), handlers=[handler])
    threading.stack_size(_STACK_NBYTES)
    status = Worker(stdin=sys.stdin.buffer, stdout=_take_stdout(), loader=Loader()).run()
    # Without the interpreter's end, which would wait for what the threads do in native code.
    os._exit(status)


if __name__ == "__main__":
    main()
