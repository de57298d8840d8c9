"""The CPU as a device: compiled kernels run a whole Program on their own threads, without the GIL.

Weights are repacked once at load (kernels/cpu/formats.h); activations are quantised to int16 by blocks of 32 where the
weights are quantised. A row's bits depend on nothing but the row and its sequence: not on how a prompt is cut into
steps, on what shares the step, or on the number of threads. Knows no model and no file format.
"""

import contextlib
import ctypes
import mmap
from collections.abc import Callable, Mapping
from contextlib import ExitStack

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.arena import ALIGNMENT
from hipfire.devices.base import CancelFlag, Limits, Progress, Step, check_vocabulary, raw_bytes
from hipfire.devices.cpu_lowering import Addresses, lower, plan_program
from hipfire.devices.host_memory import available_nbytes
from hipfire.devices.host_processors import n_usable_cores
from hipfire.devices.logits import Logits, RowMath, best_of
from hipfire.devices.native_row_math import NativeRowMath
from hipfire.dtypes import dequantize
from hipfire.errors import DeviceError, OutOfMemory, StepCancelled
from hipfire.kernels.library import KV_FORMATS, CpuOp, CpuStep, Library, OpKind
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.program import ops
from hipfire.program.operands import Buffer, Constant, KvState, Symbol, Weight
from hipfire.program.program import Program

KV_CACHES = {"auto": "q16", "q16": "q16", "f16": "f16", "q8": "q8", "f32": "f32"}
KV_TILE = 32
"""Positions of a slot are allocated in multiples of this (kv.h)."""
MAX_THREADS = 1024
MAX_COUNT = 2**31 - 1
"""Sizes are int32 in the kernels' structs; ctypes would cut off what is beyond."""


class CpuDevice:
    """One variant's kernels and a number of threads."""

    name = "cpu"
    native = True

    def __init__(self, library: Library, variant: str, n_threads: int) -> None:
        self.variant = variant
        self.n_threads = n_threads
        self.row_math = NativeRowMath(library)
        self._library = library

    @classmethod
    def open(cls, n_threads: int | None, *, variant: str | None = None) -> "CpuDevice":
        """The best variant that the machine runs, or the one named; None threads: one for each core.

        Raises DeviceError when there are no compiled kernels for this machine, or not the variant asked for.
        """
        variants = machine_variants()
        if variant is not None and variant not in variants:
            raise DeviceError(f"this CPU does not run the {variant} kernels, only {', '.join(variants)}")
        chosen = variant or variants[0]
        n_threads = n_usable_cores() if n_threads is None else n_threads
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
        """See `Device.load_nbytes`. Threads' scratch, 40 bytes for each column of the widest matrix, is not counted."""
        kv_cache = _choose_kv_cache(limits)
        _check_support(self._library, program)
        _check_counts(program, limits)
        plan = plan_program(program, _counting_rows(limits), self._library.q16_row_nbytes, keep=False)
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
        """See `Device.load`. The state is q16 unless `limits.kv_cache` says f32, f16 or q8."""
        return CpuExecutable(
            self._library, self.row_math, self.n_threads, program, tensors, limits, on_progress, keep_buffers
        )


class CpuExecutable:
    """A Program in memory that the kernels can run."""

    def __init__(
        self,
        library: Library,
        row_math: RowMath,
        n_threads: int,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        on_progress: Progress,
        keep_buffers: bool,
    ) -> None:
        self._pool: int | None = None
        self._states: dict[str, NDArray[np.uint8]] = {}
        self._vectors: dict[str, NDArray[np.float32]] = {}
        self._packed: dict[str, NDArray[np.uint8]] = {}
        self._library = library
        self._row_math = row_math
        self._program = program
        self._limits = limits
        self._keep_buffers = keep_buffers
        self.kv_cache = _choose_kv_cache(limits)
        _check_support(library, program)
        _check_counts(program, limits)
        self._n_vocab = min(op.table.shape[0] for op in program.ops if isinstance(op, ops.Embed))
        self._pool = library.pool_open(n_threads, self._scratch_nbytes())
        if self._pool is None:
            raise DeviceError(f"{n_threads} threads could not be started", hint="ask for fewer with --threads")
        with ExitStack() as cleanup:
            cleanup.callback(self.close)
            self._load(tensors, on_progress)
            cleanup.pop_all()

    def run(self, step: Step, cancel: CancelFlag, *, op_ns: NDArray[np.int64] | None = None) -> Logits:
        """See `Executable.run`. `op_ns` [len(op_kinds)] gets how many nanoseconds each op took."""
        if self._pool is None:
            raise DeviceError("the model was closed")
        # The kernels trust these numbers as indices.
        step.check(self._limits, n_vocab=self._n_vocab)
        n_tokens, n_outputs = len(step.token_ids), len(step.output_rows)
        # The arrays must be contiguous and live until the call is over.
        inputs = [
            np.ascontiguousarray(values) for values in (step.token_ids, step.positions, step.slots, step.output_rows)
        ]
        native = CpuStep(*(values.ctypes.data for values in inputs), n_tokens, n_outputs)
        assert op_ns is None or (op_ns.shape == (len(self._ops),) and op_ns.dtype == np.int64)
        clock = None if op_ns is None else op_ns.ctypes.data
        done = self._library.run(self._pool, self._ops, len(self._ops), ctypes.byref(native), cancel.address, clock)
        if not done:
            raise StepCancelled("the step was cancelled")
        self._last_rows = {Symbol.N_TOKENS: n_tokens, Symbol.N_OUTPUTS: n_outputs}
        rows = self._view(self._program.logits)[:n_outputs]
        return Logits(best=best_of(rows, step.n_best, self._row_math), rows=rows)

    @property
    def op_kinds(self) -> tuple[OpKind, ...]:
        """What the kernels run: one op for each of the Program's, and some that only quantise, each behind the op whose
        output it reads.
        """
        return tuple(OpKind(op.kind) for op in self._ops)

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        """See `Executable.copy_state`."""
        limits = self._limits
        assert source != target
        assert max(source, target) < limits.n_slots
        assert n_positions <= limits.max_seq
        for op in self._ops:
            if op.kind == OpKind.ROPE_STORE:
                self._library.kv_copy(ctypes.byref(op), source, target, n_positions)

    def read(self, buffer: Buffer) -> NDArray[np.float32]:
        """See `Executable.read`."""
        if not self._keep_buffers:
            raise DeviceError("buffers were not kept: load the Program with keep_buffers")
        rows = buffer.shape[0]
        assert isinstance(rows, Symbol)
        return self._view(buffer)[: self._last_rows[rows]].copy()

    def close(self) -> None:
        """See `Executable.close`."""
        if self._pool is not None:
            self._library.pool_close(self._pool)
            self._pool = None
            self._arena = _zeros(0)
            for held in (self._states, self._vectors, self._packed):
                held.clear()

    def _scratch_nbytes(self) -> int:
        """What a thread needs for the widest matrix and the largest head."""
        library, program = self._library, self._program
        widths = {weight.shape[-1] for weight in program.weights}
        heads = {state.head_dim for state in program.states}
        sizes = [int(library.linear_scratch_nbytes(width)) for width in widths]
        return max(sizes + [int(library.attention_scratch_nbytes(head_dim)) for head_dim in heads])

    def _load(self, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress) -> None:
        self._n_rows = _counting_rows(self._limits)
        self._plan = plan_program(self._program, self._n_rows, self._library.q16_row_nbytes, keep=self._keep_buffers)
        self._arena = _zeros(self._plan.nbytes)
        for state in self._program.states:
            nbytes = _state_nbytes(self._library, state, self._limits, self.kv_cache)
            self._states[state.name] = _sparse_zeros(nbytes)
        self._place_weights(tensors, on_progress)
        self._addresses = Addresses(
            arena=self._arena.ctypes.data,
            plan=self._plan,
            vectors={name: values.ctypes.data for name, values in self._vectors.items()},
            packed={name: data.ctypes.data for name, data in self._packed.items()},
            states={name: data.ctypes.data for name, data in self._states.items()},
            formats=self._library.formats,
            kv_format=KV_FORMATS[self.kv_cache],
            max_seq=_padded_length(self._limits),
        )
        lowered = lower(self._program, self._addresses)
        self._ops = (CpuOp * len(lowered))(*lowered)
        self.memory_nbytes = self._arena.nbytes + sum(
            array.nbytes for held in (self._states, self._vectors, self._packed) for array in held.values()
        )

    def _place_weights(self, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress) -> None:
        raw = {weight.name: raw_bytes(weight, tensors) for weight in self._program.weights}
        total = sum(data.nbytes for data in raw.values())
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
            data = raw[weight.name]
            if _is_matrix(weight):
                nbytes = _packed_nbytes(self._library, weight)
                self._pack(weight, data, free[:nbytes])
                free = free[_aligned(nbytes) :]
            else:
                self._vectors[weight.name] = dequantize(data, weight.dtype, weight.shape)
            done += data.nbytes
            on_progress(done / total)

    def _pack(self, weight: Weight, raw: NDArray[np.uint8], packed: NDArray[np.uint8]) -> None:
        number = self._library.formats[weight.dtype.name]
        self._library.pack(self._pool, number, raw.ctypes.data, packed.ctypes.data, *weight.shape)
        self._packed[weight.name] = packed

    def _view(self, buffer: Buffer) -> NDArray[np.float32]:
        region = self._plan.floats[buffer.name]
        nbytes = self._n_rows(buffer) * buffer.width * 4
        flat = self._arena[region.offset : region.offset + nbytes].view(np.float32)
        return flat.reshape(-1, buffer.width)


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT


def _zeros(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory that begins at a cache line. Raises OutOfMemory."""
    try:
        memory = np.zeros(nbytes + ALIGNMENT, np.uint8)
    except MemoryError as error:
        raise OutOfMemory(f"not enough memory for the model: {error}") from error
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes]


def _sparse_zeros(nbytes: int) -> NDArray[np.uint8]:
    """Zeroed memory that takes room page by page as it is written, however large it is. Raises OutOfMemory.

    A slot has room for a whole context; in small pages it costs what its conversation has come to.
    """
    try:
        memory = mmap.mmap(-1, max(nbytes, 1))
    except (OSError, OverflowError) as error:
        raise OutOfMemory(f"not enough memory for the model: {nbytes} bytes of KV cache, {error}") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without huge pages knows no such advice
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8, nbytes)


def _is_matrix(weight: Weight) -> bool:
    return len(weight.shape) > 1


def _choose_kv_cache(limits: Limits) -> str:
    if limits.kv_cache not in KV_CACHES:
        known = ", ".join(KV_CACHES)
        raise DeviceError(f"the cpu device has no {limits.kv_cache} KV cache", hint=f"choose one of {known}")
    return KV_CACHES[limits.kv_cache]


def _check_support(library: Library, program: Program) -> None:
    for weight in program.weights:
        if weight.dtype.name not in library.formats:
            raise DeviceError(f"{weight.name}: the cpu device has no kernels for {weight.dtype.name}")


def _check_counts(program: Program, limits: Limits) -> None:
    """Raise DeviceError for what the kernels cannot count."""
    check_vocabulary(program)
    largest = max(dim for weight in program.weights for dim in weight.shape)
    for what, n in (
        ("positions", _padded_length(limits)),
        ("sequences", limits.n_slots),
        ("rows", limits.max_tokens),
        ("elements in a row of a weight", largest),
    ):
        if n > MAX_COUNT:
            raise DeviceError(f"{n} {what}: the cpu device counts up to {MAX_COUNT}")


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
    n_positions, number = _padded_length(limits), KV_FORMATS[kv_cache]
    return int(library.kv_nbytes(limits.n_slots, state.n_kv_heads, state.head_dim, n_positions, number))


def _packed_nbytes(library: Library, weight: Weight) -> int:
    """Bytes of a weight in the kernels' layout; vectors are float32."""
    if not _is_matrix(weight):
        return 4 * weight.n_elements
    return int(library.packed_nbytes(library.formats[weight.dtype.name], *weight.shape))
