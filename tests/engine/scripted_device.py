"""A device whose logits follow a script: a function of the tokens that its own state holds for the row.

It keeps token ids where a real device keeps keys and values, so a wrong slot, position, chunk or order of steps shows
in the logits. A step that is broken off leaves what it would have written poisoned, as a real one may.
"""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hipfire.devices.base import CancelFlag, Limits, Progress, Step
from hipfire.devices.logits import Logits, best_of
from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.engine.loader import Loader
from hipfire.errors import StepCancelled
from hipfire.formats.checkpoint import Checkpoint
from hipfire.models.model import Model
from hipfire.program.operands import Buffer, Symbol
from hipfire.program.program import Program

N_VOCAB = 32
UNWRITTEN, POISON = -1, -2

Script = Callable[[tuple[int, ...]], np.ndarray]
"""From the tokens up to and with the row's own to its logits [N_VOCAB]."""

Hook = Callable[[Step, CancelFlag], None]
"""Called in the middle of every step: it may post messages, wait, or raise what a device raises."""


def hashed(prefix: tuple[int, ...]) -> np.ndarray:
    """Logits that any change to any token of the prefix changes."""
    seed = zlib.crc32(np.array(prefix, np.int32).tobytes())
    return np.random.default_rng(seed).standard_normal(N_VOCAB).astype(np.float32)


def counting(prefix: tuple[int, ...]) -> np.ndarray:
    """After n comes n + 1."""
    logits = np.zeros(N_VOCAB, np.float32)
    logits[(prefix[-1] + 1) % N_VOCAB] = 5
    return logits


def no_hook(step: Step, cancel: CancelFlag) -> None:
    """Nothing happens in the middle of a step."""


class ScriptedExecutable:
    memory_nbytes = 1 << 20
    kv_cache = "f32"

    def __init__(self, device: "ScriptedDevice", limits: Limits) -> None:
        self.limits = limits
        self.steps: list[Step] = []
        self.copies: list[tuple[int, int, int]] = []
        self.is_closed = False
        self._device = device
        self._state = np.full((limits.n_slots, limits.max_seq), UNWRITTEN)

    def run(self, step: Step, cancel: CancelFlag) -> Logits:
        assert not self.is_closed
        step.check(self.limits, n_vocab=N_VOCAB)
        self.steps.append(step)
        self._state[step.slots, step.positions] = POISON
        self._device.hook(step, cancel)
        if cancel.is_set():
            raise StepCancelled("broken off")
        self._state[step.slots, step.positions] = step.token_ids
        logits = [self._device.script(self._prefix(step, row)) for row in step.output_rows]
        rows = np.array(logits, np.float32).reshape(-1, N_VOCAB)
        # Nothing that was not asked for, as a GPU does it.
        return Logits(
            best=best_of(rows, step.n_best, self._device.row_math),
            rows=rows if step.whole else None,
        )

    def _prefix(self, step: Step, row: int) -> tuple[int, ...]:
        prefix = self._state[step.slots[row], : step.positions[row] + 1]
        assert (prefix >= 0).all(), "a row reads what was never written, or by a step that was broken off"
        return tuple(prefix.tolist())

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        assert not self.is_closed
        assert source != target
        self.copies.append((source, target, n_positions))
        self._state[target] = POISON
        self._state[target, :n_positions] = self._state[source, :n_positions]

    def read(self, buffer: Buffer) -> np.ndarray:
        raise NotImplementedError

    def close(self) -> None:
        self.is_closed = True


class ScriptedDevice:
    name = "scripted"
    description = "scripted (1 thread)"
    native = True
    row_math = NumpyRowMath()

    def __init__(
        self, script: Script = hashed, *, hook: Hook = no_hook, position_nbytes: int = 1, free_nbytes: int | None = None
    ) -> None:
        self.script = script
        self.hook = hook
        self.loaded: list[ScriptedExecutable] = []
        self._position_nbytes = position_nbytes
        self._free_nbytes = free_nbytes

    def free_nbytes(self) -> int | None:
        return self._free_nbytes

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        return self._position_nbytes * limits.n_slots * limits.max_seq

    def load(
        self,
        program: Program,
        tensors: Mapping[str, np.ndarray],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> ScriptedExecutable:
        for percent in range(0, 101, 10):
            on_progress(percent / 100)
        self.loaded.append(ScriptedExecutable(self, limits))
        return self.loaded[-1]


def scripted_loader(device: ScriptedDevice, *, context_length: int = 64, max_step_tokens: int = 512) -> Loader:
    """Loads any path as a model of N_VOCAB tokens on the device."""
    logits = Buffer(name="logits", shape=(Symbol.N_OUTPUTS, N_VOCAB))
    model = Model(
        architecture="scripted",
        program=Program(ops=(), logits=logits, states=()),
        n_vocab=N_VOCAB,
        context_length=context_length,
        n_layers=0,
    )

    def open_checkpoint(path: Path) -> Checkpoint:
        return Checkpoint(
            path=path,
            architecture="scripted",
            metadata={},
            tensors={},
            nbytes=0,
            rope_interleaved=False,
            close=lambda: None,
        )

    return Loader(
        max_step_tokens=max_step_tokens,
        open_checkpoint=open_checkpoint,
        build_program=lambda checkpoint: model,
        open_device=lambda name, *, n_threads: device,
    )
