"""What is asked of the engine, handed from the reading thread to the engine's, and when to break off a step for it.

A step is broken off (the device's CancelFlag) when the rest of it is worth less than running it anew:
- when every sequence in it was cancelled, or the model is to be unloaded, or the engine is to end;
- when a sequence was cancelled that has a chunk of its prompt in it, whoever shares the step. The chunk is what makes
  such a step long; the others' rows are run again without it. Nothing of theirs is lost or changed by that: a sequence
  advances only when a step is complete, keys and values are addressed by position, so the second run overwrites what
  the first one half wrote, and a row's bits do not depend on what shares its step.
A cancelled sequence that only decodes just leaves when the step is done.

Knows no device: the flag is all it sees of one.
"""

import threading
from collections.abc import Iterable

from hipfire.devices.base import CancelFlag
from hipfire.engine.scheduler import Chunk
from hipfire.wire.messages import Cancel, Load, ToEngine, Unload


class Inbox:
    """`put` and `close` are for any thread, the rest for the engine's."""

    def __init__(self) -> None:
        self.flag = CancelFlag()
        self._changed = threading.Condition()
        self._messages: list[ToEngine] = []
        self._is_closed = False
        self._running: dict[str, Chunk] = {}

    def put(self, message: ToEngine) -> None:
        with self._changed:
            self._messages.append(message)
            self._break_off_for(message)
            self._changed.notify()

    def close(self) -> None:
        """Nothing more is wanted of the engine, not even the step under way. Idempotent."""
        with self._changed:
            self._is_closed = True
            self.flag.set()
            self._changed.notify()

    def take(self, *, wait: bool) -> list[ToEngine] | None:
        """All messages that are there, oldest first; with `wait` at least one. None once closed."""
        with self._changed:
            while wait and not self._messages and not self._is_closed:
                self._changed.wait()
            messages, self._messages = self._messages, []
            return None if self._is_closed else messages

    def begin(self, chunks: Iterable[Chunk]) -> None:
        """A step with these chunks is about to run."""
        with self._changed:
            if self._is_closed:
                return
            self.flag.clear()
            self._running = {chunk.sequence.id: chunk for chunk in chunks}
            # Those that came since `take`.
            for message in self._messages:
                self._break_off_for(message)

    def end(self) -> None:
        """The step is over."""
        with self._changed:
            self._running = {}

    def _break_off_for(self, message: ToEngine) -> None:
        match message:
            case Cancel():
                chunk = self._running.pop(message.id, None)
                if chunk is not None and (chunk.n_tokens > 1 or not self._running):
                    self.flag.set()
            case Load() | Unload():
                if self._running:
                    self.flag.set()
