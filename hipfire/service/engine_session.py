"""One engine process, from its start to its death: writes messages, reads and hands out the answers.

Knows nothing of what happens after its death: that is `link`.
"""

import logging
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import trio

from hipfire.errors import (
    ContextLengthExceeded,
    DeviceError,
    EngineUnavailable,
    HipfireError,
    InvalidRequest,
    ModelFileError,
    ModelNotFound,
    OutOfMemory,
    Unsupported,
    WireError,
)
from hipfire.service.engine_process import EngineProcess
from hipfire.service.ticket import Ticket
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Failed,
    Finished,
    Generate,
    Heartbeat,
    Hello,
    Load,
    Loaded,
    LoadFailed,
    LoadProgress,
    Started,
    ToEngine,
    Token,
    Unload,
    Unloaded,
    Vocabulary,
)

log = logging.getLogger("hipfire.service")

_READ_NBYTES = 1 << 16
_EXIT_TIMEOUT_S = 2.0

# The errors an engine may name by their code; any other code is a fault of the engine itself.
_ERRORS: Mapping[str, type[HipfireError]] = MappingProxyType(
    {
        kind.code: kind
        for kind in (
            ContextLengthExceeded, DeviceError, EngineUnavailable, InvalidRequest, ModelFileError, ModelNotFound,
            OutOfMemory, Unsupported,
        )
    }
)  # fmt: skip


_HINT = "it is being restarted; try again"


def _stopped() -> EngineUnavailable:
    return EngineUnavailable("the engine stopped", hint=_HINT)


def error_of(code: str, message: str) -> HipfireError:
    """The error that a code and message from the engine stand for."""
    return _ERRORS.get(code, HipfireError)(message)


class Reply:
    """The answer to a Load or Unload, once it is there."""

    def __init__(self, on_progress: Callable[[LoadProgress], None] | None = None) -> None:
        self.on_progress = on_progress
        self._done = trio.Event()
        self._outcome: Loaded | Unloaded | HipfireError | None = None

    def settle(self, outcome: Loaded | Unloaded | HipfireError) -> None:
        """The first outcome counts."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.set()

    async def wait(self) -> Loaded | Unloaded:
        await self._done.wait()
        if isinstance(self._outcome, HipfireError):
            raise self._outcome
        assert self._outcome is not None
        return self._outcome


class EngineSession:
    """Everything that is under way in one engine process. `run` ends with the process."""

    def __init__(
        self,
        process: EngineProcess,
        *,
        on_ready: Callable[[], None],
        on_over: Callable[[], None],
        start_timeout_s: float,
        silence_timeout_s: float,
    ) -> None:
        self.is_ready = False
        self.knows_vocabulary = False
        """Whether it was told of the tokens of the model that is loaded."""
        self._process = process
        self._on_ready = on_ready
        self._on_over = on_over
        self._start_timeout_s = start_timeout_s
        self._silence_timeout_s = silence_timeout_s
        self._outbox, self._to_write = trio.open_memory_channel[ToEngine](math.inf)
        self._tickets: dict[str, Ticket] = {}
        self._reply: Reply | None = None
        # Runs out when no heartbeat renews it.
        self._patience = trio.CancelScope()
        self._is_over = False

    def generate(self, message: Generate, vocabulary: Vocabulary | None = None) -> Ticket:
        """Have a generation started, and tell of the vocabulary before. Raises EngineUnavailable when it is dead."""
        ticket = Ticket(message.id, post_cancel=lambda id_: self._post(Cancel(id=id_)))
        if vocabulary is not None:
            self._post(vocabulary)
            self.knows_vocabulary = True
        self._post(message)
        if self._is_over:
            raise _stopped()
        self._tickets[ticket.id] = ticket
        return ticket

    def ask(self, message: Load | Unload, reply: Reply) -> None:
        """Post a message whose one answer goes to `reply`. Ask one thing at a time."""
        self._reply = reply
        self.knows_vocabulary = False
        self._post(message)
        if self._is_over:
            reply.settle(_stopped())

    def _post(self, message: ToEngine) -> None:
        if not self._is_over:
            self._outbox.send_nowait(message)

    async def run(self) -> None:
        """Serve until the process dies, hangs or babbles; then stop it, and fail what was under way."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                with trio.move_on_after(self._start_timeout_s) as self._patience:
                    await self._read()
                if self._patience.cancelled_caught:
                    log.error("engine %d was silent for too long; it is killed", self._process.pid)
                nursery.cancel_scope.cancel()
            self.is_ready, self._is_over = False, True
            self._on_over()
        finally:
            self.is_ready, self._is_over = False, True
            self._settle(_stopped())
            self.fail_generations("the engine stopped", hint=_HINT)
            await self._stop_process()

    async def _write(self) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async for message in self._to_write:
                await stdin.send_all(encode(message))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The process is going; reading notices its end.
            return

    async def _read(self) -> None:
        """Hand out messages until the end of the stream."""
        stdout = self._process.stdout
        assert stdout is not None
        rest = b""
        try:
            while chunk := await stdout.receive_some(_READ_NBYTES):
                lines = (rest + chunk).split(b"\n")
                rest = lines.pop()
                for line in lines:
                    self._dispatch(decode(line))
        except trio.BrokenResourceError:
            return
        except WireError as error:
            log.error("engine %d wrote something else than a message; it is killed: %s", self._process.pid, error)

    def _dispatch(self, message: object) -> None:
        match message:
            case Started() | Token():
                if ticket := self._tickets.get(message.id):
                    ticket.deliver(message)
            case Finished() | Cancelled():
                self._end(message.id, message)
            case Failed():
                self._end(message.id, error_of(message.code, message.message))
            case Heartbeat():
                self._renew_patience()
            case Hello():
                self._renew_patience()
                self.is_ready = True
                self._on_ready()
            case LoadProgress():
                if self._reply is not None and self._reply.on_progress is not None:
                    self._reply.on_progress(message)
            case Loaded() | Unloaded():
                self._settle(message)
            case LoadFailed():
                self._settle(error_of(message.code, message.message))

    def _renew_patience(self) -> None:
        self._patience.deadline = trio.current_time() + self._silence_timeout_s

    def _end(self, id_: str, outcome: Finished | Cancelled | HipfireError) -> None:
        if ticket := self._tickets.pop(id_, None):
            ticket.end(outcome)

    def _settle(self, outcome: Loaded | Unloaded | HipfireError) -> None:
        if self._reply is not None:
            self._reply.settle(outcome)
            self._reply = None

    def fail_generations(self, message: str, *, hint: str | None = None) -> None:
        """End all of them with EngineUnavailable; the engine, if it is there, is told to stop them."""
        while self._tickets:
            _, ticket = self._tickets.popitem()
            ticket.cancel()
            ticket.end(EngineUnavailable(message, hint=hint))

    async def _stop_process(self) -> None:
        """Close its stdin, at which it ends by itself; kill it when it does not."""
        with trio.move_on_after(_EXIT_TIMEOUT_S, shield=True):
            if self._process.stdin is not None:
                await trio.aclose_forcefully(self._process.stdin)
            status = await self._process.wait()
            log.debug("engine %d ended with status %d", self._process.pid, status)
            return
        self._process.kill()
        # A process that the kernel does not let go of, waiting for a device, is left to it.
        with trio.move_on_after(_EXIT_TIMEOUT_S, shield=True):
            await self._process.wait()
