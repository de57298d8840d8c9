"""The CPU as a device: compiled kernels run a whole Program on their own threads, without the GIL.

Weights are repacked once at load (kernels/cpu/formats.h); activations are quantised to int16 by blocks of 32 where the
weights are quantised. A row's bits depend on nothing but the row and its sequence: not on how a prompt is cut into
steps, on what shares the step, or on the number of threads. Knows no model and no file format.
"""

import ctypes
import functools
import os
from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits, Progress, Step
from hipfire.devices.cpu_lowering import ALIGNMENT, Addresses, lower, plan_buffers
from hipfire.devices.host_memory import available_nbytes
from hipfire.dtypes import dequantize
from hipfire.errors import DeviceError, OutOfMemory, StepCancelled
from hipfire.kernels.library import CpuOp, CpuStep, Library
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.program import ops
from hipfire.program.operands import Buffer, Constant, KvState, Symbol, Weight
from hipfire.program.program import Program

KV_CACHES = {"auto": "f16", "f16": "f16", "f32": "f32"}
KV_TILE = 32
"""Positions of a slot are allocated in multiples of this (attention.c)."""
MAX_THREADS = 1024


def default_n_threads() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class CpuDevice:
    """One variant's kernels and a number of threads."""

    name = "cpu"
    native = True

    def __init__(self, library: Library, variant: str, n_threads: int) -> None:
        self.variant = variant
        self.n_threads = n_threads
        self._library = library

    @classmethod
    def open(cls, n_threads: int | None, *, variant: str | None = None) -> "CpuDevice":
        """The best variant that the machine runs, or the one named; None threads: one for each processor.

        Raises DeviceError when there are no compiled kernels for this machine, or not the variant asked for.
        """
        variants = machine_variants()
        if variant is not None and variant not in variants:
            raise DeviceError(f"this CPU does not run the {variant} kernels, only {', '.join(variants)}")
        chosen = variant or variants[0]
        n_threads = default_n_threads() if n_threads is None else n_threads
        if not 1 <= n_threads <= MAX_THREADS:
            raise DeviceError(f"{n_threads} threads", hint=f"choose 1 to {MAX_THREADS}")
        return cls(load_variant(chosen), chosen, n_threads)

    @property
    def description(self) -> str:
        plural = "" if self.n_threads == 1 else "s"
        return f"cpu ({self.variant}, {self.n_threads} thread{plural})"

    def free_nbytes(self) -> int | None:
        """See `Device.free_nbytes`."""
        return available_nbytes()

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        """See `Device.load_nbytes`. Threads' scratch, a few KiB each, is not counted."""
        kv_cache = _choose_kv_cache(limits)
        _check_support(self._library, program)
        plan = plan_buffers(program, _counting_rows(limits), self._library.q16_row_nbytes, keep=False)
        states = sum(_state_nbytes(self._library, state, limits, kv_cache) for state in program.states)
        return plan.nbytes + states + sum(_packed_nbytes(self._library, weight) for weight in program.weights)

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> "CpuExecutable":
        """See `Device.load`. The state is f16 unless `limits.kv_cache` says f32."""
        return CpuExecutable(self._library, self.n_threads, program, tensors, limits, on_progress, keep_buffers)


class CpuExecutable:
    """A Program in memory that the kernels can run."""

    def __init__(
        self,
        library: Library,
        n_threads: int,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        on_progress: Progress,
        keep_buffers: bool,
    ) -> None:
        self._pool: int | None = None
        self._library = library
        self._program = program
        self._limits = limits
        self._keep_buffers = keep_buffers
        self.kv_cache = _choose_kv_cache(limits)
        _check_support(library, program)
        scratch = max(library.scratch_nbytes(width) for width in self._widths())
        self._pool = library.pool_open(n_threads, scratch)
        if self._pool is None:
            raise DeviceError(f"{n_threads} threads could not be started", hint="ask for fewer with --threads")
        try:
            self._load(tensors, on_progress)
        except MemoryError as error:
            self.close()
            raise OutOfMemory(f"not enough memory for the model: {error}") from error

    def run(self, step: Step, cancel: CancelFlag) -> NDArray[np.float32]:
        """See `Executable.run`."""
        assert self._pool is not None, "closed"
        n_tokens, n_outputs = len(step.token_ids), len(step.output_rows)
        self._check_step(step, n_tokens, n_outputs)
        # The arrays must be contiguous and live until the call is over.
        inputs = [
            np.ascontiguousarray(values, np.int32)
            for values in (step.token_ids, step.positions, step.slots, step.output_rows)
        ]
        native = CpuStep(*(values.ctypes.data for values in inputs), n_tokens, n_outputs)
        done = self._library.run(self._pool, self._ops, len(self._ops), ctypes.byref(native), cancel.address)
        if not done:
            raise StepCancelled("the step was cancelled")
        self._last_rows = {Symbol.N_TOKENS: n_tokens, Symbol.N_OUTPUTS: n_outputs}
        return self._view(self._program.logits)[:n_outputs]

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        """See `Executable.copy_state`."""
        n_tiles = -(-n_positions // KV_TILE)
        for state in self._program.states:
            # Whatever the layout within a tile is: a slot is a plane for each head, and a plane is tiles in order.
            planes = self._states[state.name].reshape(self._limits.n_slots, state.n_kv_heads, -1)
            tile_nbytes = planes.shape[-1] * KV_TILE // _padded_length(self._limits)
            planes[target, :, : n_tiles * tile_nbytes] = planes[source, :, : n_tiles * tile_nbytes]

    def read(self, buffer: Buffer) -> NDArray[np.float32]:
        """See `Executable.read`."""
        assert self._keep_buffers, "load with keep_buffers=True"
        rows = buffer.shape[0]
        assert isinstance(rows, Symbol)
        return self._view(buffer)[: self._last_rows[rows]].copy()

    def close(self) -> None:
        """See `Executable.close`."""
        if self._pool is not None:
            self._library.pool_close(self._pool)
            self._pool = None
            self._packed.clear()
            self._states.clear()

    def _widths(self) -> list[int]:
        """Columns that a thread's scratch must hold: of every matrix, and of a head."""
        widths = [weight.shape[-1] for weight in self._program.weights]
        return widths + [state.head_dim for state in self._program.states]

    def _load(self, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress) -> None:
        self._n_rows = _counting_rows(self._limits)
        self._plan = plan_buffers(self._program, self._n_rows, self._library.q16_row_nbytes, keep=self._keep_buffers)
        self._arena = _zeros(self._plan.nbytes)
        self._states = {
            state.name: _zeros(_state_nbytes(self._library, state, self._limits, self.kv_cache))
            for state in self._program.states
        }
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._packed: dict[str, NDArray[np.uint8]] = {}
        self._place_weights(tensors, on_progress)
        self._addresses = Addresses(
            arena=self._arena.ctypes.data,
            plan=self._plan,
            vectors={name: values.ctypes.data for name, values in self._vectors.items()},
            packed={name: data.ctypes.data for name, data in self._packed.items()},
            states={name: data.ctypes.data for name, data in self._states.items()},
            formats=self._library.formats,
            kv_is_f16=self.kv_cache == "f16",
            max_seq=_padded_length(self._limits),
        )
        lowered = lower(self._program, self._addresses)
        self._ops = (CpuOp * len(lowered))(*lowered)
        self.memory_nbytes = self._arena.nbytes + sum(
            array.nbytes for held in (self._states, self._vectors, self._packed) for array in held.values()
        )

    def _place_weights(self, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress) -> None:
        total = sum(tensors[weight.name].nbytes for weight in self._program.weights)
        done = 0
        for op in self._program.ops:
            for operand in op.operands():
                if isinstance(operand, Constant):
                    self._vectors[operand.name] = np.ascontiguousarray(operand.value, np.float32)
        # One piece of memory for all matrices: the system backs it with huge pages, which saves address look-ups.
        sizes = [
            _aligned(_packed_nbytes(self._library, weight)) for weight in self._program.weights if _is_matrix(weight)
        ]
        free = _zeros(sum(sizes))
        for weight in self._program.weights:
            raw = tensors[weight.name]
            if _is_matrix(weight):
                nbytes = _packed_nbytes(self._library, weight)
                self._pack(weight, raw, free[:nbytes])
                free = free[_aligned(nbytes) :]
            else:
                self._vectors[weight.name] = dequantize(raw, weight.dtype, weight.shape)
            done += raw.nbytes
            on_progress(done / total)

    def _pack(self, weight: Weight, raw: NDArray[np.uint8], packed: NDArray[np.uint8]) -> None:
        number = self._library.formats[weight.dtype.name]
        self._library.pack(self._pool, number, raw.ctypes.data, packed.ctypes.data, *weight.shape)
        self._packed[weight.name] = packed

    def _check_step(self, step: Step, n_tokens: int, n_outputs: int) -> None:
        """The kernels trust their inputs: refuse here what would make them read or write elsewhere."""
        limits = self._limits
        if not (0 < n_tokens <= limits.max_tokens and n_outputs <= limits.max_outputs):
            raise ValueError(f"{n_tokens} rows and {n_outputs} outputs in a step of {limits}")
        for what, values, n_rows, end in (
            ("token ids", step.token_ids, n_tokens, self._n_vocab),
            ("positions", step.positions, n_tokens, limits.max_seq),
            ("slots", step.slots, n_tokens, limits.n_slots),
            ("output rows", step.output_rows, n_outputs, n_tokens),
        ):
            if len(values) != n_rows or (n_rows and not 0 <= values.min() <= values.max() < end):
                raise ValueError(f"a step's {what} are not {n_rows} numbers of 0..{end - 1}")

    @functools.cached_property
    def _n_vocab(self) -> int:
        return min(op.table.shape[0] for op in self._program.ops if isinstance(op, ops.Embed))

    def _view(self, buffer: Buffer) -> NDArray[np.float32]:
        region = self._plan.floats[buffer.name]
        nbytes = self._n_rows(buffer) * buffer.width * 4
        flat = self._arena[region.offset : region.offset + nbytes].view(np.float32)
        return flat.reshape(-1, buffer.width)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _zeros(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a cache line."""
    memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _is_matrix(weight: Weight) -> bool:
    return len(weight.shape) > 1


def _choose_kv_cache(limits: Limits) -> str:
    if limits.kv_cache not in KV_CACHES:
        known = ", ".join(KV_CACHES)
        raise DeviceError(f"the cpu device has no {limits.kv_cache} KV cache", hint=f"choose one of {known}")
    return KV_CACHES[limits.kv_cache]


def _check_support(library: Library, program: Program) -> None:
    for state in program.states:
        if state.head_dim % 8:
            raise DeviceError(f"heads of {state.head_dim} elements: the cpu device needs a multiple of 8")
    for weight in program.weights:
        if weight.dtype.name not in library.formats:
            raise DeviceError(f"{weight.name}: the cpu device has no kernels for {weight.dtype.name}")


def _counting_rows(limits: Limits) -> Callable[[Buffer], int]:
    """A function that tells how many rows a buffer has in the largest step."""
    per_step = {Symbol.N_TOKENS: limits.max_tokens, Symbol.N_OUTPUTS: limits.max_outputs}

    def n_rows(buffer: Buffer) -> int:
        rows = buffer.shape[0]
        assert isinstance(rows, Symbol)
        return per_step[rows]

    return n_rows


def _padded_length(limits: Limits) -> int:
    """Positions of a slot: whole tiles."""
    return -(-limits.max_seq // KV_TILE) * KV_TILE


def _state_nbytes(library: Library, state: KvState, limits: Limits, kv_cache: str) -> int:
    n_positions, is_f16 = _padded_length(limits), kv_cache == "f16"
    return int(library.kv_nbytes(limits.n_slots, state.n_kv_heads, state.head_dim, n_positions, is_f16))


def _packed_nbytes(library: Library, weight: Weight) -> int:
    """Bytes of a weight in the kernels' layout; vectors are float32."""
    if not _is_matrix(weight):
        return 4 * weight.n_elements
    return int(library.packed_nbytes(library.formats[weight.dtype.name], *weight.shape))
