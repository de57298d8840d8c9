"""Counts what the attention kernels' machine code runs, for `python -m hipfire.kernels.report --roofline`.

    PYTHONPATH=tests python benchmarks/gpu_attention.py $(PYTHONPATH=tests python -m emulator.build build/emulator)

The library is the emulated libamdhip64 (docs/emulator.md). Counts of decoding go to
hipfire/kernels/attention_counts.json; those of a prompt of 256 rows are shown. They are exact and the same on every
machine: nothing is timed. What the kernels run does not depend on the numbers, so those are zeros.
"""

import argparse
import ctypes
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import attrs
import numpy as np
from gpu_instructions import ARCHITECTURES, profile, summary

from hipfire.devices.arena import Plan, Region
from hipfire.devices.hip_lowering import LOWER, Addresses, LaunchSpec, StepShape, max_chunks_of, partial_nbytes
from hipfire.hip.device_list import GpuInfo, list_devices
from hipfire.hip.library import HipLibrary
from hipfire.hip.runtime import Runtime
from hipfire.kernels.attention_counts import HEAD_DIM, N_HEADS, N_KV_HEADS, N_POSITIONS, PATH
from hipfire.kernels.hip_table import CHUNK, KERNELS, fill, kv_row_nbytes
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.library import Launch, Library
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.program import ops
from hipfire.program.operands import Buffer, KvState, Symbol

Instructions = list[tuple[str, int]]

N_ROWS = 256


@attrs.frozen(kw_only=True)
class Layer:
    """Attention of `n_rows` rows, the last of which is at position `end` - 1."""

    kv: str
    n_heads: int
    n_kv_heads: int = 1
    n_rows: int = 1
    end: int = N_POSITIONS

    @property
    def op(self) -> ops.Attention:
        q, out = (Buffer(name=name, shape=(Symbol.N_TOKENS, self.n_heads * HEAD_DIM)) for name in ("q", "out"))
        keys, values = (
            KvState(name=name, n_kv_heads=self.n_kv_heads, head_dim=HEAD_DIM) for name in ("keys", "values")
        )
        return ops.Attention(out=out, q=q, keys=keys, values=values, n_heads=self.n_heads, scale=HEAD_DIM**-0.5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="the emulated libamdhip64")
    options = parser.parse_args()
    os.environ["HIP_EMULATOR_ARCH"] = ",".join(ARCHITECTURES)
    library = HipLibrary(str(options.library.resolve()))
    emulator = ctypes.CDLL(library.path)
    emulator.emulatorProfile.restype = ctypes.c_size_t
    packing = load_variant(machine_variants()[0])
    gpus = list_devices(library)
    document = {
        "objects": {arch: hashlib.sha256(code_objects(arch)["attention"]).hexdigest() for arch in ARCHITECTURES},
        "counts": {gpu.arch: decoding_counts(library, gpu, emulator, packing) for gpu in gpus},
    }
    PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written: {PATH}")
    for gpu in gpus:
        for n_heads in (4, 8):
            layer = Layer(kv="f16", n_heads=n_heads, n_rows=N_ROWS, end=N_ROWS)
            show(gpu, layer, [found for _, found in instructions(library, gpu, emulator, packing, layer)])


def decoding_counts(
    library: HipLibrary, gpu: GpuInfo, emulator: ctypes.CDLL, packing: Library
) -> dict[str, dict[str, object]]:
    """Of every type of state, by kernel; `attention_join` is counted with each."""
    counts = {}
    for kv in ("f16", "q8"):
        layer = Layer(kv=kv, n_heads=N_HEADS, n_kv_heads=N_KV_HEADS)
        (kernel, main_part), (_, join) = instructions(library, gpu, emulator, packing, layer)
        show(gpu, layer, [main_part, join])
        nbytes = 2 * N_POSITIONS * N_KV_HEADS * kv_row_nbytes(kv, HEAD_DIM)
        rounds = summary(main_part)["rounds"]
        counts[kernel] = {"weights_nbytes": nbytes, **summary(main_part + join), "rounds": rounds}
    return counts


def show(gpu: GpuInfo, layer: Layer, kernels: list[Instructions]) -> None:
    """Instructions and loads for a product of an element of a key or a value."""
    found = summary([row for kernel in kernels for row in kernel])
    wave = 64 if gpu.arch.startswith("gfx9") else 32
    n_seen = sum(range(layer.end - layer.n_rows + 1, layer.end + 1))
    n_products = 2 * n_seen * layer.n_heads * HEAD_DIM / wave
    classes, lane_nbytes = found["classes"], found["lane_nbytes"]
    assert isinstance(classes, dict)
    assert isinstance(lane_nbytes, int)
    print(
        f"{gpu.arch} {layer.kv} {layer.n_heads}/{layer.n_kv_heads} heads, {layer.n_rows} rows up to {layer.end}: "
        f"{sum(classes.values()) / n_products:.2f} instructions and {lane_nbytes / n_products:.2f} bytes a product"
    )


def instructions(
    library: HipLibrary, gpu: GpuInfo, emulator: ctypes.CDLL, packing: Library, layer: Layer
) -> Iterator[tuple[str, Instructions]]:
    """Each kernel of the layer, and what it ran."""
    runtime = Runtime(library, gpu.index)
    module = runtime.load_module(code_objects(gpu.arch)["attention"])
    for launch in launches(runtime, layer):
        run(runtime, packing, runtime.function(module, launch.kernel), launch)
        yield launch.kernel, profile(emulator)
    runtime.close()


def launches(runtime: Runtime, layer: Layer) -> list[LaunchSpec]:
    """The layer's launches on zeros."""

    def zeros(nbytes: int) -> int:
        address = runtime.allocate(nbytes, "zeros")
        runtime.enqueue_zeros(address, nbytes)
        return address

    op, n_chunks = layer.op, max_chunks_of(layer.end)
    positions = np.arange(layer.end - layer.n_rows, layer.end, dtype=np.int32)
    positions_at = runtime.allocate(positions.nbytes, "positions")
    runtime.upload(positions_at, positions.ctypes.data, positions.nbytes)
    rows_nbytes = layer.n_rows * op.q.width * 4
    regions = {name: Region(offset=i * rows_nbytes, nbytes=rows_nbytes) for i, name in enumerate(("q", "out"))}
    partials_nbytes = layer.n_rows * partial_nbytes(op, n_chunks)
    state_nbytes = layer.n_kv_heads * n_chunks * CHUNK * kv_row_nbytes(layer.kv, HEAD_DIM)
    at = Addresses(
        arena=zeros(2 * rows_nbytes),
        plan=Plan(floats=regions, quantised={}, nbytes=2 * rows_nbytes),
        weights={},
        nbytes={},
        host_step=0,
        max_tokens=layer.n_rows,
        states={"keys": zeros(state_nbytes), "values": zeros(state_nbytes)},
        token_ids=0,
        positions=positions_at,
        slots=zeros(positions.nbytes),
        output_rows=0,
        partials=runtime.allocate(partials_nbytes, "partials"),
        partials_nbytes=partials_nbytes,
        kv_cache=layer.kv,
        max_seq=n_chunks * CHUNK,
        lists=0,
        best=0,
        arch="gfx1100",
        n_compute_units=1,
    )
    return LOWER[ops.Attention](op, at, StepShape(n_tokens=layer.n_rows, n_outputs=1, n_chunks=n_chunks))


def run(runtime: Runtime, packing: Library, function: int, spec: LaunchSpec) -> None:
    """One launch, to its end."""
    kernel = KERNELS[spec.kernel]
    arguments = fill(kernel, spec.arguments)
    launch = (Launch * 1)()
    launch[0].function = function
    launch[0].arguments = ctypes.addressof(arguments)
    launch[0].arguments_nbytes = ctypes.sizeof(arguments)
    launch[0].grid[:] = spec.grid
    launch[0].n_threads = kernel.n_threads
    status = packing.launch(runtime.launch_address, launch, 1, runtime.stream)
    if status:
        raise runtime.error(status)
    runtime.synchronize()


if __name__ == "__main__":
    main()
