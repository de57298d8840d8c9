"""The reference device: NumPy float32. It is the oracle for other devices, and the fallback where none of them loads.

Weights are dequantised once, at load, and so take 4 bytes an element. See `reference_ops` for how far its rows are
reproducible. Threads are those of NumPy's BLAS library; unless more are asked for it gets one, because its threads
wait for each other by spinning: with a busy neighbour two were ten times slower than one.
Knows no model, no file format, no sampling.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import attrs
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]  # it ships no types

from hipfire.devices import host_memory
from hipfire.devices.base import CancelFlag, Limits, Progress, Step, check_vocabulary, raw_bytes
from hipfire.devices.logits import Logits, best_of
from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.devices.reference_ops import Floats, Frame, evaluate
from hipfire.dtypes import dequantize
from hipfire.errors import DeviceError, OutOfMemory, StepCancelled
from hipfire.program.operands import Buffer, Symbol
from hipfire.program.ops import Embed
from hipfire.program.program import Program

_F32_NBYTES = 4


class ReferenceExecutable:
    """A Program with its weights dequantised and its state zeroed."""

    kv_cache = "f32"

    def __init__(
        self,
        program: Program,
        weights: dict[str, Floats],
        states: dict[str, Floats],
        limits: Limits,
        *,
        keep: bool,
        blas: ThreadpoolController,
        n_threads: int,
    ) -> None:
        self._program = program
        self._weights = weights
        self._states = states
        self._limits = limits
        self._buffers: dict[str, Floats] = {}
        self._keep = keep
        self._blas = blas
        self._n_threads = n_threads
        self._dead_after = _dead_after(program, keep=keep)
        self._n_vocab = min(op.table.shape[0] for op in program.ops if isinstance(op, Embed))
        self.memory_nbytes = _memory_nbytes(program, limits, keep=keep)

    def run(self, step: Step, cancel: CancelFlag) -> Logits:
        step.check(self._limits, n_vocab=self._n_vocab)
        self._buffers.clear()
        frame = Frame(step=step, weights=self._weights, states=self._states, buffers=self._buffers)
        # exp(-x) may overflow where its reciprocal is 0 all the same; weights that are no numbers show in the logits.
        with np.errstate(over="ignore", invalid="ignore"), self._blas.limit(limits=self._n_threads):
            for op, dead in zip(self._program.ops, self._dead_after, strict=True):
                if cancel.is_set():
                    raise StepCancelled("the step was cancelled")
                self._buffers[op.out.name] = evaluate(op, frame)
                for name in dead:
                    del self._buffers[name]
        rows = self._buffers[self._program.logits.name]
        return Logits(best=best_of(rows, step.n_best, NumpyRowMath()), rows=rows)

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        for state in self._states.values():
            state[target, :n_positions] = state[source, :n_positions]

    def read(self, buffer: Buffer) -> NDArray[np.float32]:
        if not self._keep:
            raise DeviceError("buffers were not kept: load the Program with keep_buffers")
        return self._buffers[buffer.name]

    def close(self) -> None:
        for held in (self._weights, self._states, self._buffers):
            held.clear()


@attrs.frozen(kw_only=True, eq=False)
class ReferenceDevice:
    """Runs any Program with NumPy."""

    name: ClassVar[str] = "reference"
    native: ClassVar[bool] = False
    row_math: ClassVar[NumpyRowMath] = NumpyRowMath()

    description: str
    _blas: ThreadpoolController
    _n_threads: int
    _available_nbytes: Callable[[], int | None]

    @classmethod
    def open(
        cls,
        n_threads: int | None = None,
        *,
        note: str = "",
        available_nbytes: Callable[[], int | None] = host_memory.available_nbytes,
    ) -> "ReferenceDevice":
        """The device, with a note at the end of its description.

        Raises DeviceError where threads are asked for and NumPy's BLAS library takes no orders.
        """
        if n_threads is not None and n_threads < 1:
            raise DeviceError(f"{n_threads} threads", hint="choose 1 or more")
        blas = ThreadpoolController().select(user_api="blas")
        if n_threads is not None and not len(blas):
            raise DeviceError("the reference device cannot set the threads of NumPy's BLAS library", hint="set none")
        return cls(
            description=f"reference (NumPy, {_counted(n_threads or 1)}){note}",
            blas=blas,
            n_threads=n_threads or 1,
            available_nbytes=available_nbytes,
        )

    def free_nbytes(self) -> int | None:
        return self._available_nbytes()

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        _check_kv_cache(limits)
        check_vocabulary(program)
        return _memory_nbytes(program, limits, keep=False)

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> ReferenceExecutable:
        _check_kv_cache(limits)
        check_vocabulary(program)
        needed = _memory_nbytes(program, limits, keep=keep_buffers)
        host_memory.require_memory("the model in float32", needed, self._available_nbytes())
        try:
            weights = _dequantized(program, tensors, on_progress)
            states = {
                state.name: np.zeros((limits.n_slots, limits.max_seq, state.n_kv_heads, state.head_dim), np.float32)
                for state in program.states
            }
        except MemoryError as error:
            raise OutOfMemory(f"the model in float32 needs {needed} bytes, which could not be had") from error
        return ReferenceExecutable(
            program, weights, states, limits, keep=keep_buffers, blas=self._blas, n_threads=self._n_threads
        )


def _counted(n_threads: int) -> str:
    return "1 thread" if n_threads == 1 else f"{n_threads} threads"


def _check_kv_cache(limits: Limits) -> None:
    if limits.kv_cache not in ("auto", "f32"):
        raise DeviceError(
            f"the reference device keeps keys and values in f32, not {limits.kv_cache}",
            hint="set the KV cache to auto or f32",
        )


def _dequantized(
    program: Program, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress
) -> dict[str, Floats]:
    weights = program.weights
    total = sum(weight.n_elements for weight in weights)
    done = 0
    found: dict[str, Floats] = {}
    for weight in weights:
        found[weight.name] = dequantize(raw_bytes(weight, tensors), weight.dtype, weight.shape)
        done += weight.n_elements
        on_progress(done / total)
    return found


def _dead_after(program: Program, *, keep: bool) -> list[tuple[str, ...]]:
    """For each op, the names of the buffers that nothing needs after it; none where all are kept."""
    dead: list[list[str]] = [[] for _ in program.ops]
    if not keep:
        for name, index in program.last_reads.items():
            if index < len(program.ops):
                dead[index].append(name)
    return [tuple(names) for names in dead]


def _memory_nbytes(program: Program, limits: Limits, *, keep: bool) -> int:
    """Bytes of weights and states, and of the most that is alive of the largest step's activations."""
    weights = sum(weight.n_elements for weight in program.weights)
    states = sum(limits.n_slots * limits.max_seq * state.n_kv_heads * state.head_dim for state in program.states)
    n_rows = {Symbol.N_TOKENS: limits.max_tokens, Symbol.N_OUTPUTS: limits.max_outputs}
    sizes: dict[str, int] = {}
    most = alive = 0
    for op, dead in zip(program.ops, _dead_after(program, keep=keep), strict=True):
        rows = op.out.shape[0]
        assert isinstance(rows, Symbol)
        sizes[op.out.name] = n_rows[rows] * op.out.width
        alive += sizes[op.out.name]
        most = max(most, alive)
        alive -= sum(sizes[name] for name in dead)
    return (weights + states + most) * _F32_NBYTES
