"""An AMD GPU as a device: prebuilt kernels (kernels/hsaco), launched in lists, synchronised once a step.

The weights lie as on the CPU, packed by its library. A row's bits depend on nothing but the row and its sequence.
Knows no model and no file format.
"""

import ctypes
import logging
from collections.abc import Mapping
from contextlib import ExitStack

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.arena import Plan
from hipfire.devices.base import CancelFlag, Limits, Progress, Step, check_vocabulary
from hipfire.devices.hip_graphs import StepGraphs
from hipfire.devices.hip_launches import LaunchLists
from hipfire.devices.hip_lowering import (
    Addresses,
    StepShape,
    max_chunks_of,
    n_chunks_of,
    n_slices_of,
    partial_nbytes,
)
from hipfire.devices.hip_plan import plan_program
from hipfire.devices.hip_weights import Placement, packed_nbytes, place_weights, upload_weights
from hipfire.devices.host_memory import available_nbytes
from hipfire.devices.host_processors import n_usable_cores
from hipfire.devices.logits import MAX_BEST, Best, Logits
from hipfire.devices.native_row_math import NativeRowMath
from hipfire.errors import DeviceError, DeviceLost, StepCancelled
from hipfire.hip.card_users import other_users
from hipfire.hip.device_list import GpuInfo, choose_device, list_devices
from hipfire.hip.library import HipError, HipLibrary, library_paths, open_library, why_no_device
from hipfire.hip.runtime import Runtime
from hipfire.hip.shared_memory import shared_free_nbytes
from hipfire.kernels.hip_table import BEST_COUNTS, KV_TYPES, MAX_HEAD_DIM, kv_row_nbytes
from hipfire.kernels.hsaco import code_objects, is_covered
from hipfire.kernels.library import Library
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.program import ops
from hipfire.program.operands import Buffer, KvState
from hipfire.program.program import Program

log = logging.getLogger("hipfire.engine")

KV_TILE = 32
"""Positions of a slot are allocated in multiples of this (kv.h)."""
MAX_PARTIALS_NBYTES = 64 << 20
"""Room for partial results of attention; more rows than fit take more launches."""
_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32)])
"""An entry of Addresses.best (sampling.hip)."""


class HipDevice:
    """One GPU of the runtime."""

    name = "hip"
    native = True

    def __init__(self, library: HipLibrary, gpu: GpuInfo, packing: Library, n_threads: int) -> None:
        self.gpu = gpu
        self.objects = code_objects(gpu.arch)
        self.packing = packing
        self.n_threads = n_threads
        self.library = library
        self.row_math = NativeRowMath(packing)

    @classmethod
    def open(cls, wanted: str | None, n_threads: int | None) -> "HipDevice":
        """The GPU meant by an index, architecture, PCI address or UUID; None: the best that there are kernels for.

        Raises DeviceError: NoHip without a runtime library, others that say what to do.
        """
        library = open_library(library_paths())
        gpus = list_devices(library)
        if not gpus:
            advice = why_no_device()
            # Who asked for none by name is given the processor anyway.
            raise DeviceError("no AMD GPU was found", hint=f"{advice}; or use --device cpu" if wanted else advice)
        covered = [gpu for gpu in gpus if is_covered(gpu.arch)]
        gpu = choose_device(gpus if wanted or not covered else covered, wanted)
        return cls(library, gpu, load_variant(machine_variants()[0]), n_threads or n_usable_cores())

    @property
    def description(self) -> str:
        return f"hip:{self.gpu.index} ({self.gpu.name}, {self.gpu.arch})"

    def free_nbytes(self) -> int | None:
        """See `Device.free_nbytes`."""
        if self.gpu.integrated:
            shared = shared_free_nbytes(self.gpu.pci, available_nbytes())
            if shared is not None:
                return shared
        with ExitStack() as cleanup:
            runtime = Runtime(self.library, self.gpu.index)
            cleanup.callback(runtime.close)
            return runtime.memory()[0]

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        """See `Device.load_nbytes`."""
        sizes = _Sizes.of(program, limits, self.packing, keep=False)
        return sizes.nbytes

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> "HipExecutable":
        """See `Device.load`. The state is f16 unless `limits.kv_cache` says f32 or q8."""
        for pid, nbytes in other_users(self.gpu.pci).items():
            log.warning("process %d has %.1f GB of %s too: both will be slow", pid, nbytes / 1e9, self.description)
        return HipExecutable(self, program, tensors, limits, on_progress, keep_buffers)


@attrs.frozen(kw_only=True, eq=False)
class _Sizes:
    """Bytes of everything that a loaded Program has on the device. Raises DeviceError for what kernels cannot do."""

    plan: Plan
    weights: Placement
    states: Mapping[str, int]
    max_chunks: int
    partials_nbytes: int
    best: int
    lists: int
    kv_cache: str
    max_seq: int

    @classmethod
    def of(cls, program: Program, limits: Limits, packing: Library, *, keep: bool) -> "_Sizes":
        kv_cache = "f16" if limits.kv_cache == "auto" else limits.kv_cache
        if kv_cache not in KV_TYPES:
            raise DeviceError(f"the hip device has no {kv_cache} KV cache", hint=f"choose one of {', '.join(KV_TYPES)}")
        check_vocabulary(program)
        for state in program.states:
            if state.head_dim % 8 or state.head_dim > MAX_HEAD_DIM:
                raise DeviceError(f"the hip device has no kernels for heads of {state.head_dim}")
        max_seq = -(-limits.max_seq // KV_TILE) * KV_TILE
        max_chunks = max_chunks_of(limits.max_seq)
        partials = max(
            (partial_nbytes(op, max_chunks) for op in program.ops if isinstance(op, ops.Attention)), default=4
        )
        shape = StepShape(n_tokens=limits.max_tokens, n_outputs=limits.max_outputs, n_chunks=max_chunks)
        return cls(
            plan=plan_program(program, shape.n_rows, keep=keep),
            weights=place_weights(program, packing),
            states={state.name: _state_nbytes(state, limits.n_slots, max_seq, kv_cache) for state in program.states},
            max_chunks=max_chunks,
            partials_nbytes=partials * max(min(MAX_PARTIALS_NBYTES // partials, limits.max_tokens), 1),
            best=limits.max_outputs * MAX_BEST * _CANDIDATE.itemsize,
            lists=limits.max_outputs * MAX_BEST * n_slices_of(program.logits.width) * 8,
            kv_cache=kv_cache,
            max_seq=max_seq,
        )

    @property
    def nbytes(self) -> int:
        held = self.weights.nbytes + sum(self.states.values()) + self.best + self.lists
        return self.plan.nbytes + held + self.partials_nbytes


class HipExecutable:
    """A Program in a GPU's memory that its kernels can run."""

    def __init__(
        self,
        device: HipDevice,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        on_progress: Progress,
        keep_buffers: bool,
    ) -> None:
        self._program = program
        self._limits = limits
        self._keep_buffers = keep_buffers
        self._sizes = _Sizes.of(program, limits, device.packing, keep=keep_buffers)
        self._n_vocab = min(op.table.shape[0] for op in program.ops if isinstance(op, ops.Embed))
        self.kv_cache = self._sizes.kv_cache
        self.memory_nbytes = self._sizes.nbytes
        with ExitStack() as cleanup:
            self._runtime = Runtime(device.library, device.gpu.index)
            cleanup.callback(self._runtime.close)
            self._place(device, tensors, on_progress)
            modules = {source: self._runtime.load_module(code) for source, code in device.objects.items()}
            self._launches = LaunchLists(program, self._addresses, self._runtime, modules, device.packing)
            self._graphs = StepGraphs(self._runtime, device.gpu.arch, is_wanted=limits.graphs)
            cleanup.callback(self._graphs.close)
            self._cleanup = cleanup.pop_all()
        self._is_open = True

    def run(self, step: Step, cancel: CancelFlag) -> Logits:
        """See `Executable.run`. Raises DeviceLost where the GPU failed: no later step can succeed."""
        if not self._is_open:
            raise DeviceError("the model was closed")
        # The kernels trust these numbers as indices.
        step.check(self._limits, n_vocab=self._n_vocab)
        if cancel.is_set():
            raise StepCancelled("the step was cancelled")
        self._shape = StepShape(
            n_tokens=len(step.token_ids),
            n_outputs=len(step.output_rows),
            n_chunks=n_chunks_of(int(step.positions.max()) + 1, self._sizes.max_chunks),
            n_best=min(count for count in BEST_COUNTS if count >= step.n_best),
        )
        self._write_step(step)
        try:
            self._graphs.run(
                self._shape, lambda: self._launches.enqueue(self._shape), lambda: self._download(whole=step.whole)
            )
        except HipError as error:
            self._runtime.is_lost = True
            raise DeviceLost(f"the GPU failed: {error.message}") from error
        if cancel.is_set():
            raise StepCancelled("the step was cancelled")
        return Logits(
            best=self._best(step.n_best) if step.n_best else None,
            rows=self._host_logits[: self._shape.n_outputs] if step.whole else None,
        )

    def copy_state(self, source: int, target: int, n_positions: int) -> None:
        """See `Executable.copy_state`. In whole tiles: a few positions more than was asked for do no harm."""
        n_rows = -(-n_positions // KV_TILE) * KV_TILE
        for state in self._program.states:
            row = kv_row_nbytes(self.kv_cache, state.head_dim)
            base, plane = self._addresses.states[state.name], self._sizes.max_seq * row
            for head in range(state.n_kv_heads):
                start = base + (target * state.n_kv_heads + head) * plane
                self._runtime.enqueue_copy(start, base + (source * state.n_kv_heads + head) * plane, n_rows * row)

    def read(self, buffer: Buffer) -> NDArray[np.float32]:
        """See `Executable.read`."""
        if not self._keep_buffers:
            raise DeviceError("buffers were not kept: load the Program with keep_buffers")
        out = np.empty((self._shape.n_rows(buffer), buffer.width), np.float32)
        self._runtime.download(out.ctypes.data, self._address_of(buffer), out.nbytes)
        return out

    def close(self) -> None:
        """See `Executable.close`."""
        self._is_open = False
        self._cleanup.close()

    def _download(self, *, whole: bool) -> list[NDArray[np.generic]]:
        """Wait for the step; what it left in the host's memory: logits, the highest logits."""
        n_outputs, n_best = self._shape.n_outputs, self._shape.n_best
        parts: list[tuple[NDArray[np.generic], int]] = []
        if whole:
            parts.append((self._host_logits[:n_outputs], self._address_of(self._program.logits)))
        if n_best:
            parts.append((self._host_best[: n_outputs * n_best], self._addresses.best))
        for part, source in parts:
            if part.nbytes:
                self._runtime.enqueue_download(part.ctypes.data, source, part.nbytes)
        self._runtime.synchronize()
        return [part for part, _ in parts]

    def _best(self, n_best: int) -> Best:
        n_outputs, n_found = self._shape.n_outputs, self._shape.n_best
        table = self._host_best[: n_outputs * n_found].reshape(n_outputs, n_found)
        table = table[:, : min(n_best, self._program.logits.width)]
        return Best(ids=np.ascontiguousarray(table["id"]), values=np.ascontiguousarray(table["logit"]))

    def _address_of(self, buffer: Buffer) -> int:
        address = self._addresses.buffer(buffer)
        assert address is not None
        return address

    def _place(self, device: HipDevice, tensors: Mapping[str, NDArray[np.uint8]], on_progress: Progress) -> None:
        runtime, sizes, limits = self._runtime, self._sizes, self._limits
        inputs = _Inputs(limits.max_tokens, limits.max_outputs)
        device_inputs = runtime.allocate(inputs.nbytes, "a step's input")
        host_inputs = runtime.allocate_pinned(inputs.nbytes, "a step's input")
        self._inputs = inputs.views(host_inputs)
        logits_shape = (limits.max_outputs, self._program.logits.width)
        pinned = runtime.allocate_pinned(logits_shape[0] * logits_shape[1] * 4, "the logits")
        self._host_logits = _floats_at(pinned, logits_shape)
        pinned = runtime.allocate_pinned(sizes.best, "the highest logits")
        self._host_best = np.frombuffer(_bytes_at(pinned, sizes.best), _CANDIDATE)
        states = {}
        for name, nbytes in sizes.states.items():
            states[name] = runtime.allocate(nbytes, "the KV cache")
            runtime.enqueue_zeros(states[name], nbytes)
        weights = runtime.allocate(sizes.weights.nbytes, "the model")
        upload_weights(
            self._program, tensors, sizes.weights, weights, runtime, device.packing, device.n_threads, on_progress
        )
        self._addresses = Addresses(
            arena=runtime.allocate(sizes.plan.nbytes, "the activations"),
            plan=sizes.plan,
            weights={name: weights + offset for name, offset in sizes.weights.offsets.items()},
            nbytes={weight.name: packed_nbytes(device.packing, weight) for weight in self._program.weights},
            states=states,
            host_step=runtime.device_address(host_inputs),
            max_tokens=limits.max_tokens,
            token_ids=device_inputs + inputs.token_ids,
            positions=device_inputs + inputs.positions,
            slots=device_inputs + inputs.slots,
            output_rows=device_inputs + inputs.output_rows,
            partials=runtime.allocate(sizes.partials_nbytes, "attention"),
            partials_nbytes=sizes.partials_nbytes,
            kv_cache=sizes.kv_cache,
            max_seq=sizes.max_seq,
            lists=runtime.allocate(sizes.lists, "the highest logits"),
            best=runtime.allocate(sizes.best, "the highest logits"),
            arch=device.gpu.arch,
            n_compute_units=device.gpu.n_compute_units,
        )
        runtime.synchronize()

    def _write_step(self, step: Step) -> None:
        for view, values in zip(
            self._inputs, (step.token_ids, step.positions, step.slots, step.output_rows), strict=True
        ):
            view[: len(values)] = values


class _Inputs:
    """A step's numbers, one array after the other in one piece of memory (kernels/hip/step.hip): offsets in bytes."""

    def __init__(self, max_tokens: int, max_outputs: int) -> None:
        self._counts = (max_tokens, max_tokens, max_tokens, max_outputs)
        self.token_ids, self.positions, self.slots, self.output_rows = (4 * max_tokens * i for i in range(4))
        self.nbytes = 4 * sum(self._counts)

    def views(self, address: int) -> list[NDArray[np.int32]]:
        """The arrays in host memory, as views of one."""
        whole = np.frombuffer(_bytes_at(address, self.nbytes), np.int32)
        starts = np.cumsum((0, *self._counts[:-1]))
        return [whole[start : start + count] for start, count in zip(starts, self._counts, strict=True)]


def _floats_at(address: int, shape: tuple[int, int]) -> NDArray[np.float32]:
    return np.frombuffer(_bytes_at(address, 4 * shape[0] * shape[1]), np.float32).reshape(shape)


def _bytes_at(address: int, nbytes: int) -> memoryview:
    """Host memory that somebody else owns."""
    return memoryview((ctypes.c_char * nbytes).from_address(address))


def _state_nbytes(state: KvState, n_slots: int, max_seq: int, kv_cache: str) -> int:
    return n_slots * state.n_kv_heads * max_seq * kv_row_nbytes(kv_cache, state.head_dim)
