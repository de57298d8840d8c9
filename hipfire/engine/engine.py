"""The engine: one loaded model, the sequences that it runs, and an answer to everything that is asked of it.

Runs in one thread. What it is asked comes from an Inbox, what it has to say goes to `emit`.
- Every Generate ends in exactly one of Finished, Failed, Cancelled. One that names an id in use is Failed, and the
  sequence that has the id goes on. Sequences beyond `max_concurrent` wait their turn.
- A sequence begins where the state of another one, running or ended, agrees with its prompt: see `state`.
- A Load or Unload fails what is running or waiting (`engine_unavailable`): whoever sent it decided so. A Load frees
  the old model before it reads the new one, so after a LoadFailed there is none.
- A device that fails fails every sequence that has a slot, and no state is used again. Those that wait get their turn.
- A grammar is compiled when its sequence has its turn, with the tokens of the last Vocabulary since the Load.
- A Cancel for an unknown id is ignored: that sequence may just have ended.

Knows no threads, streams or processes.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable

from hipfire.engine.grammars import Grammars
from hipfire.engine.inbox import Inbox
from hipfire.engine.loader import LoadedModel, Loader
from hipfire.engine.scheduler import Chunk, plan
from hipfire.engine.sequence import Sequence
from hipfire.engine.state import Slots
from hipfire.engine.step import settle, step_of
from hipfire.engine.validation import check_request
from hipfire.errors import DeviceError, EngineUnavailable, HipfireError, InvalidRequest, OutOfMemory, StepCancelled
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Failed,
    FromEngine,
    Generate,
    Load,
    Loaded,
    LoadFailed,
    LoadProgress,
    Started,
    ToEngine,
    Unload,
    Unloaded,
    Vocabulary,
)

log = logging.getLogger("hipfire.engine")

_PROGRESS_STEP = 0.01


class Engine:
    """`run` is the thread's body; `busy_since` may be read from any thread: when the step under way began, or None."""

    def __init__(
        self, inbox: Inbox, emit: Callable[[FromEngine], None], *, loader: Loader, clock: Callable[[], float]
    ) -> None:
        self.busy_since: float | None = None
        self._inbox = inbox
        self._emit = emit
        self._loader = loader
        self._clock = clock
        self._model: LoadedModel | None = None
        self._grammars = Grammars(None)
        self._slots = Slots(0)
        self._active: list[Sequence] = []
        self._waiting: deque[Generate] = deque()

    def run(self) -> None:
        """Answer messages and run steps until the inbox is closed; then free the model."""
        while (messages := self._inbox.take(wait=not self.is_busy)) is not None:
            self.turn(messages)
        self._close_model()

    @property
    def is_busy(self) -> bool:
        """Whether another `turn` makes sense when nothing new was asked."""
        return bool(self._active or self._waiting)

    def turn(self, messages: Iterable[ToEngine]) -> None:
        """Answer messages, then run one step if there is anything to run."""
        for message in messages:
            self._handle(message)
        self._admit()
        if self._active:
            self._step()

    def _handle(self, message: ToEngine) -> None:
        match message:
            case Generate():
                self._generate(message)
            case Cancel():
                self._cancel(message.id)
            case Vocabulary():
                self._grammars = Grammars(message)
            case Load():
                self._load(message)
            case Unload():
                self._fail_all(EngineUnavailable("the model was unloaded"))
                self._close_model()
                self._emit(Unloaded())

    def _generate(self, request: Generate) -> None:
        try:
            if self._model is None:
                raise EngineUnavailable("no model is loaded")
            if request.id in self._ids():
                raise InvalidRequest(f"the id {request.id} is in use")
            check_request(request, n_vocab=self._model.model.n_vocab, context_length=self._model.context_length)
        except HipfireError as error:
            self._emit(Failed(id=request.id, code=error.code, message=str(error)))
        else:
            self._waiting.append(request)

    def _ids(self) -> set[str]:
        return {sequence.id for sequence in self._active} | {request.id for request in self._waiting}

    def _cancel(self, id_: str) -> None:
        for sequence in self._active:
            if sequence.id == id_:
                self._emit(sequence.cancel())
                self._release_ended()
                return
        for request in self._waiting:
            if request.id == id_:
                self._waiting.remove(request)
                self._emit(Cancelled(id=id_))
                return

    def _load(self, load: Load) -> None:
        self._fail_all(EngineUnavailable("another model was loaded"))
        self._close_model()
        started_at = self._clock()
        try:
            self._model = model = self._loader.load(load, self._progress())
        except (HipfireError, MemoryError) as raised:
            error = _typed(raised)
            # Whoever asked for the load says so; once is enough.
            log.debug("cannot load %s: %s", load.path, error)
            self._emit(LoadFailed(path=load.path, code=error.code, message=str(error)))
            return
        self._slots = Slots(model.n_slots, keeps=model.keeps_prefixes)
        loaded = Loaded(
            path=load.path,
            architecture=model.model.architecture,
            device=model.device.description,
            native=model.device.native,
            n_vocab=model.model.n_vocab,
            context_length=model.context_length,
            kv_cache=model.executable.kv_cache,
            memory_nbytes=model.executable.memory_nbytes,
            load_ms=1000 * (self._clock() - started_at),
        )
        log.info(
            "loaded %s on %s: context %d, %s KV cache for %d sequences, %d MiB, %.0f ms",
            loaded.path,
            loaded.device,
            loaded.context_length,
            loaded.kv_cache,
            model.n_slots,
            loaded.memory_nbytes >> 20,
            loaded.load_ms,
        )
        self._emit(loaded)

    def _progress(self) -> Callable[[float], None]:
        """A function that passes a load's progress on, a percent at a time."""
        told = -1.0

        def tell(fraction: float) -> None:
            nonlocal told
            if fraction >= told + _PROGRESS_STEP:
                told = fraction
                self._emit(LoadProgress(stage="weights", fraction=fraction))

        return tell

    def _admit(self) -> None:
        """Start those that wait, first come first served, as long as more may run."""
        while self._waiting and self._model is not None and len(self._active) < self._model.max_concurrent:
            self._start(self._waiting.popleft(), self._model)

    def _start(self, request: Generate, model: LoadedModel) -> None:
        now = self._clock()
        try:
            constraint = self._grammars.constraint(request.grammar, n_vocab=model.model.n_vocab)
        except InvalidRequest as error:
            self._emit(Failed(id=request.id, code=error.code, message=str(error)))
            return
        place = self._slots.take(request.prompt, self._active)
        self._active.append(
            Sequence(
                request,
                slot=place.slot,
                n_cached=place.n_cached,
                context_length=model.context_length,
                now=now,
                constraint=constraint,
            )
        )
        try:
            if place.copy_from is not None:
                model.executable.copy_state(place.copy_from, place.slot, place.n_cached)
        except (DeviceError, MemoryError) as raised:
            self._fail_active(raised)
        else:
            self._emit(Started(id=request.id, n_cached=place.n_cached))

    def _step(self) -> None:
        assert self._model is not None
        chunks = plan(self._active, self._model.budget)
        self._inbox.begin(chunks)
        self.busy_since = self._clock()
        try:
            self._run(chunks, self._model)
        except StepCancelled:
            # Nothing has advanced. Whoever remains when the inbox was read is planned anew.
            log.debug("a step was broken off")
        except (DeviceError, MemoryError) as raised:
            self._fail_active(raised)
        finally:
            self.busy_since = None
            self._inbox.end()
        self._release_ended()

    def _run(self, chunks: tuple[Chunk, ...], model: LoadedModel) -> None:
        logits = model.executable.run(step_of(chunks), self._inbox.flag)
        for message in settle(chunks, logits, self._clock(), row_math=model.device.row_math):
            self._emit(message)

    def _release_ended(self) -> None:
        for sequence in self._active:
            if sequence.has_ended:
                self._slots.release(sequence.slot, sequence.evaluated())
        self._active = [sequence for sequence in self._active if not sequence.has_ended]

    def _fail_active(self, raised: DeviceError | MemoryError) -> None:
        error = _typed(raised)
        log.error("the device failed: %s", error)
        for sequence in self._active:
            # The memory may have gone out while tokens were chosen, after some sequences ended.
            if not sequence.has_ended:
                self._emit(sequence.fail(error.code, str(error)))
        self._release_ended()
        self._slots.forget()

    def _fail_all(self, error: HipfireError) -> None:
        for sequence in self._active:
            self._emit(sequence.fail(error.code, str(error)))
        for request in self._waiting:
            self._emit(Failed(id=request.id, code=error.code, message=str(error)))
        self._waiting.clear()
        self._release_ended()

    def _close_model(self) -> None:
        if self._model is not None:
            self._model.close()
            self._model = None
            self._grammars = Grammars(None)


def _typed(error: HipfireError | MemoryError) -> HipfireError:
    return error if isinstance(error, HipfireError) else OutOfMemory(str(error) or "the host has no more memory")
