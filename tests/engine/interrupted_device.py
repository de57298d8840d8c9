"""A real device whose steps can be broken off in the middle, at a step that the test names, not a moment.

What a step that was broken off leaves behind is undefined. Here it is the worst that can be: the keys and values of
other tokens, at all of its positions.
"""

from collections.abc import Callable, Mapping

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Device, Executable, Limits, Progress, Step
from hipfire.devices.logits import Logits
from hipfire.errors import StepCancelled
from hipfire.program.program import Program


class InterruptedExecutable:
    """`before_step` is called as each step begins, with the flag that breaks it off."""

    def __init__(self, inner: Executable, n_slots: int) -> None:
        self.before_step: Callable[[], None] = lambda: None
        self.n_slots = n_slots
        self.n_broken_off = 0
        self.n_copies = 0
        self._inner = inner
        self.memory_nbytes = inner.memory_nbytes
        self.kv_cache = inner.kv_cache

    def run(self, step: Step, cancel: CancelFlag) -> Logits:
        self.before_step()
        if cancel.is_set():
            self._inner.run(attrs.evolve(step, token_ids=step.token_ids ^ 1), CancelFlag())
            self.n_broken_off += 1
            raise StepCancelled("broken off")
        return self._inner.run(step, cancel)

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        self.n_copies += 1
        self._inner.copy_state(source, target, n_positions)

    def close(self) -> None:
        self._inner.close()


class InterruptedDevice:
    def __init__(self, inner: Device) -> None:
        self.loaded: list[InterruptedExecutable] = []
        self._inner = inner
        self.name = inner.name
        self.description = inner.description
        self.native = inner.native
        self.row_math = inner.row_math

    def free_nbytes(self) -> int | None:
        return self._inner.free_nbytes()

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        return self._inner.load_nbytes(program, limits)

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> InterruptedExecutable:
        inner = self._inner.load(program, tensors, limits, on_progress=on_progress, keep_buffers=keep_buffers)
        self.loaded.append(InterruptedExecutable(inner, limits.n_slots))
        return self.loaded[-1]
