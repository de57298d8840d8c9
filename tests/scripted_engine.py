"""An engine that says what its script says: the wire's messages over in-process pipes, on Trio's clock.

What a test wants to happen (a slow prefill, a failure, a death, a hang) is a field of the script.
"""

from collections.abc import Callable, Sequence

import attrs
import trio
from trio.testing import memory_stream_one_way_pair

from hipfire.engine.span import CappedSpan
from hipfire.wire.framing import decode, encode
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Failed,
    Finished,
    FromEngine,
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


@attrs.define(kw_only=True)
class Script:
    """What the engine does from now on. Times are in seconds."""

    tokens: Sequence[int] = ()
    reply: Callable[[Generate], Sequence[int]] | None = None
    """What it says to a prompt, in place of `tokens`."""
    prefill_s: float = 0.0
    token_s: float = 0.0
    load_s: float = 0.0
    n_vocab: int = 512
    context_length: int = 256
    n_cached: int = 0
    logprobs: Callable[[int], tuple[float, tuple[tuple[int, float], ...]]] | None = None
    fail: tuple[str, str] | None = None
    """Code and message of a failure in the prefill."""
    fail_after: int | None = None
    """Tokens before that failure; None: at once."""
    fail_load: tuple[str, str] | None = None
    die_after: int | None = None
    """Tokens before the process dies."""
    die_in_load: bool = False
    hold_after: int | None = None
    """Tokens before it waits for `go`, or for a cancellation."""
    go: trio.Event = attrs.field(factory=trio.Event)
    beat_s: float = 1.0
    silent: bool = False
    """No heartbeats."""


class ScriptedEngine:
    """Spawns processes, all in one nursery. `heard` has every message but Cancel, `cancelled` the ids cancelled."""

    def __init__(self, nursery: trio.Nursery, script: Script) -> None:
        self.script = script
        self.heard: list[ToEngine] = []
        self.cancelled: list[str] = []
        self.cancelled_at: list[float] = []
        self.processes: list[ScriptedProcess] = []
        self._nursery = nursery

    async def spawn(self) -> "ScriptedProcess":
        process = ScriptedProcess(self, pid=1000 + len(self.processes))
        self.processes.append(process)
        self._nursery.start_soon(process.run)
        return process

    def prompts(self) -> list[Generate]:
        return [message for message in self.heard if isinstance(message, Generate)]

    def loads(self) -> list[str]:
        return [message.path for message in self.heard if isinstance(message, Load)]


class ScriptedProcess:
    """One run of the engine."""

    def __init__(self, engine: ScriptedEngine, *, pid: int) -> None:
        self.pid = pid
        self.stdin, self._from_server = memory_stream_one_way_pair()
        self._to_server, self.stdout = memory_stream_one_way_pair()
        self._engine = engine
        self._write_lock = trio.Lock()
        self._ended = trio.Event()
        self._scope = trio.CancelScope()
        self._cancels: dict[str, trio.Event] = {}

    def kill(self) -> None:
        self._scope.cancel()

    async def wait(self) -> int:
        await self._ended.wait()
        return 0

    async def run(self) -> None:
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    await self.say(Hello(pid=self.pid, version="scripted"))
                    nursery.start_soon(self._beat)
                    await self._listen(nursery)
                    nursery.cancel_scope.cancel()
        finally:
            self._to_server.close()
            self._ended.set()

    async def _listen(self, nursery: trio.Nursery) -> None:
        rest = b""
        while chunk := await self._from_server.receive_some():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hear(decode(line), nursery)

    async def say(self, *messages: FromEngine) -> None:
        await self._write(b"".join(map(encode, messages)))

    async def babble(self) -> None:
        await self._write(b"this is no message\n")

    async def _write(self, data: bytes) -> None:
        async with self._write_lock:
            await self._to_server.send_all(data)

    async def _beat(self) -> None:
        while True:
            await trio.sleep(self._engine.script.beat_s)
            if not self._engine.script.silent:
                await self.say(Heartbeat(busy_s=0.0))

    def _hear(self, message: object, nursery: trio.Nursery) -> None:
        engine = self._engine
        match message:
            case Cancel():
                engine.cancelled.append(message.id)
                engine.cancelled_at.append(trio.current_time())
                if message.id in self._cancels:
                    self._cancels[message.id].set()
            case Load():
                engine.heard.append(message)
                nursery.start_soon(self._load, message)
            case Unload():
                engine.heard.append(message)
                nursery.start_soon(self.say, Unloaded())
            case Vocabulary():
                engine.heard.append(message)
            case Generate():
                engine.heard.append(message)
                self._cancels[message.id] = trio.Event()
                nursery.start_soon(self._generate, message)

    async def _load(self, message: Load) -> None:
        script = self._engine.script
        if script.load_s:
            await self.say(LoadProgress(stage="weights", fraction=0.5))
            await trio.sleep(script.load_s)
        if script.die_in_load:
            self.kill()
        elif script.fail_load is not None:
            code, text = script.fail_load
            await self.say(LoadFailed(path=message.path, code=code, message=text))
        else:
            await self.say(
                Loaded(
                    path=message.path, architecture="llama", device="scripted", native=True, n_vocab=script.n_vocab,
                    context_length=script.context_length, kv_cache="f32", memory_nbytes=12345, load_ms=1.0,
                )
            )  # fmt: skip

    async def _generate(self, message: Generate) -> None:
        script, cancel = self._engine.script, self._cancels[message.id]
        await self.say(Started(id=message.id, n_cached=script.n_cached))
        if await _cancelled_within(script.prefill_s, cancel):
            await self.say(Cancelled(id=message.id))
            return
        tokens = (script.tokens if script.reply is None else script.reply(message))[: message.max_tokens]
        span = CappedSpan(message.cap) if message.cap is not None else None
        for n_said, token in enumerate(tokens):
            if span is not None:
                token = span.next(token)  # noqa: PLW2901
            if script.fail is not None and n_said == (script.fail_after or 0):
                break
            if n_said == script.die_after:
                self.kill()
            if n_said == script.hold_after:
                await _either(script.go, cancel)
            if await _cancelled_within(script.token_s, cancel):
                await self.say(Cancelled(id=message.id, n_generated=n_said))
                return
            logprob, top = None, ()
            if script.logprobs is not None and message.sampling.n_logprobs is not None:
                logprob, top = script.logprobs(token)
            await self.say(Token(id=message.id, token=token, logprob=logprob, top=top))
        if script.fail is not None:
            await self.say(Failed(id=message.id, code=script.fail[0], message=script.fail[1]))
            return
        reason = "length" if len(tokens) == message.max_tokens else "stop"
        await self.say(
            Finished(
                id=message.id, reason=reason, n_prompt=len(message.prompt), n_cached=script.n_cached,
                n_generated=len(tokens), prompt_ms=10.0, decode_ms=20.0,
            )
        )  # fmt: skip


async def _cancelled_within(duration_s: float, cancel: trio.Event) -> bool:
    """Whether a cancellation came, or was there already, after this long at most."""
    if duration_s:
        with trio.move_on_after(duration_s):
            await cancel.wait()
    else:
        await trio.lowlevel.checkpoint()
    return cancel.is_set()


async def _either(*events: trio.Event) -> None:
    async with trio.open_nursery() as nursery:
        for event in events:
            nursery.start_soon(_wait_and_end, event, nursery)


async def _wait_and_end(event: trio.Event, nursery: trio.Nursery) -> None:
    await event.wait()
    nursery.cancel_scope.cancel()
