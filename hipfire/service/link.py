"""The link to the engine: keeps one process alive, and what is asked of it goes to the one that is alive now.

Knows no text and no HTTP, and not what to load: whoever loaded a model loads it again after a death (`on_death`).
"""

import logging
from collections import deque
from collections.abc import Callable

import trio

from hipfire.errors import EngineUnavailable
from hipfire.service.engine_process import Spawn
from hipfire.service.engine_session import EngineSession, Reply
from hipfire.service.ticket import Ticket
from hipfire.wire.messages import Generate, Load, Loaded, LoadProgress, Unload, Vocabulary

log = logging.getLogger("hipfire.service")

# An engine says something every second; one that does not has hung. Starting one imports a lot.
_START_TIMEOUT_S = 120.0
_SILENCE_TIMEOUT_S = 30.0
# This many deaths within this time, and it is no accident.
_MAX_DEATHS = 3
_DEATHS_WITHIN_S = 60.0


def _nothing() -> None:
    pass


class EngineLink:
    """`run` must be running; the other methods are for the same Trio loop.

    `on_death` is called when an engine is gone, before those who wait for its answers hear of it; `on_given_up` when
    there will be no other.
    """

    def __init__(
        self, spawn: Spawn, *, on_death: Callable[[], None] = _nothing, on_given_up: Callable[[], None] = _nothing
    ) -> None:
        self._spawn = spawn
        self._on_death = on_death
        self._on_given_up = on_given_up
        self._session: EngineSession | None = None
        self._was_up = False
        self._gave_up = False
        # Replaced each time it is set: waiters then look again.
        self._changed = trio.Event()

    @property
    def is_up(self) -> bool:
        return self._session is not None and self._session.is_ready

    @property
    def is_restarting(self) -> bool:
        """Whether it was up, is not, and will be."""
        return self._was_up and not self.is_up and not self.gave_up

    @property
    def gave_up(self) -> bool:
        return self._gave_up

    async def run(self) -> None:
        """Start the engine, and again when it dies. Ends, having given up, after three deaths within a minute."""
        deaths: deque[float] = deque(maxlen=_MAX_DEATHS)
        while True:
            await self._run_once()
            deaths.append(trio.current_time())
            if len(deaths) == _MAX_DEATHS and deaths[-1] - deaths[0] <= _DEATHS_WITHIN_S:
                log.error("the engine died %d times within a minute; giving up", _MAX_DEATHS)
                self._gave_up = True
                self._announce()
                self._on_given_up()
                return
            log.error("the engine died; starting it again")

    async def _run_once(self) -> None:
        try:
            process = await self._spawn()
        except OSError as error:
            log.error("the engine does not start: %s", error)
            return
        self._session = EngineSession(
            process,
            on_ready=self._announce,
            on_over=self._on_death,
            start_timeout_s=_START_TIMEOUT_S,
            silence_timeout_s=_SILENCE_TIMEOUT_S,
        )
        try:
            await self._session.run()
        finally:
            self._session = None

    def _announce(self) -> None:
        """Wake whoever waits for an engine that is up."""
        self._was_up = self._was_up or self.is_up
        self._changed.set()
        self._changed = trio.Event()

    async def _up(self) -> EngineSession:
        """The session of the engine that is up, once it is. Raises EngineUnavailable when none will be."""
        while True:
            if self._gave_up:
                raise _given_up()
            if self._session is not None and self._session.is_ready:
                return self._session
            await self._changed.wait()

    async def load(self, message: Load, on_progress: Callable[[LoadProgress], None] | None = None) -> Loaded:
        """Load a model, when the engine is up. Raises the typed error of a failure, or EngineUnavailable.

        One `load` or `unload` at a time.
        """
        reply = Reply(on_progress)
        session = await self._up()
        session.ask(message, reply)
        loaded = await reply.wait()
        if session is not self._session:
            raise EngineUnavailable("the engine died as soon as the model was loaded", hint="try again")
        assert isinstance(loaded, Loaded)
        return loaded

    async def unload(self) -> None:
        """Unload the model. Raises EngineUnavailable when the engine dies of it: then it is unloaded as well."""
        reply = Reply()
        (await self._up()).ask(Unload(), reply)
        await reply.wait()

    @property
    def knows_vocabulary(self) -> bool:
        """Whether the engine was told of the tokens of the model that is loaded."""
        return self._session is not None and self._session.knows_vocabulary

    def generate(self, message: Generate, vocabulary: Vocabulary | None = None) -> Ticket:
        """Start a generation on the loaded model. Raises EngineUnavailable when the engine is not up.

        `vocabulary` goes with the first one that has a grammar.
        """
        if self._gave_up:
            raise _given_up()
        if self._session is None or not self._session.is_ready:
            raise EngineUnavailable("the engine is being restarted", hint="try again")
        return self._session.generate(message, vocabulary)

    def fail_all(self, message: str) -> None:
        """End every generation with EngineUnavailable; the engine is told to stop them."""
        if self._session is not None:
            self._session.fail_generations(message)


def _given_up() -> EngineUnavailable:
    return EngineUnavailable("the engine keeps dying and is not started again", hint="the log says why")
