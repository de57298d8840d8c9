"""Counts what the linear kernels' machine code runs, for `python -m hipfire.kernels.report`: those for one row of
activations, and those for the most.

    PYTHONPATH=tests python benchmarks/gpu_instructions.py $(PYTHONPATH=tests python -m emulator.build build/emulator)

The library is the emulated libamdhip64 (docs/emulator.md). The counts go to hipfire/kernels/instruction_counts.json,
with hashes of the objects that they are of. They are exact and the same on every machine: nothing is timed. What a
kernel runs does not depend on the weights, so they are zeros.
"""

import argparse
import ctypes
import json
import os
from collections import Counter
from pathlib import Path

from hipfire.dtypes import DTYPES
from hipfire.hip.device_list import GpuInfo, list_devices
from hipfire.hip.library import HipLibrary
from hipfire.hip.runtime import Runtime
from hipfire.kernels.hip_table import KERNELS, fill
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.instruction_counts import PATH, instruction_class, lds_nbytes, load_nbytes, object_hashes
from hipfire.kernels.library import Launch, Library
from hipfire.kernels.linear_kinds import GROUP, QUANTISED_KINDS, LinearKind, kinds_of
from hipfire.kernels.select import load_variant, machine_variants

ARCHITECTURES = ("gfx1100", "gfx1151", "gfx1201", "gfx942")
N_OUT, N_IN = 64, 4096


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", type=Path, help="the emulated libamdhip64")
    options = parser.parse_args()
    os.environ["HIP_EMULATOR_ARCH"] = ",".join(ARCHITECTURES)
    library = HipLibrary(str(options.library.resolve()))
    emulator = ctypes.CDLL(library.path)
    emulator.emulatorProfile.restype = ctypes.c_size_t
    packing = load_variant(machine_variants()[0])
    document = {
        "objects": {arch: object_hashes(arch) for arch in ARCHITECTURES},
        "counts": {gpu.arch: counts_of(library, gpu, emulator, packing) for gpu in list_devices(library)},
    }
    PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written: {PATH}")


def counts_of(
    library: HipLibrary, gpu: GpuInfo, emulator: ctypes.CDLL, packing: Library
) -> dict[str, dict[str, object]]:
    """Of every kernel for one row and of those for the most, by its name."""
    runtime = Runtime(library, gpu.index)
    modules = {source: runtime.load_module(code) for source, code in code_objects(gpu.arch).items()}
    counts = {}
    for name, dtype in DTYPES.items():
        for kind, of in kinds_of(dtype).items():
            if of.n_rows not in (1, QUANTISED_KINDS["matrix"].n_rows):
                continue
            n_out, kernel = max(N_OUT, GROUP * of.n_groups), f"linear_{name}_{kind}"
            nbytes = int(packing.packed_nbytes(packing.formats[name], n_out, N_IN))
            run(runtime, packing, runtime.function(modules[of.source], kernel), kernel, n_out, nbytes, of)
            sizes = {"n_weights": n_out * N_IN, "n_rows": of.n_rows, "weights_nbytes": nbytes}
            counts[kernel] = sizes | summary(profile(emulator))
        print(f"{gpu.arch} {name}")
    runtime.close()
    return counts


def run(
    runtime: Runtime, packing: Library, function: int, name: str, n_out: int, nbytes: int, kind: LinearKind
) -> None:
    """As many rows of zeros as the kernel takes at once, times a matrix of zeros."""
    kernel = KERNELS[name]
    x_nbytes, out_nbytes = 4 * N_IN * kind.n_rows, 4 * n_out * kind.n_rows
    packed, x, out = (
        runtime.allocate(size, what) for size, what in ((nbytes, "weights"), (x_nbytes, "x"), (out_nbytes, "out"))
    )
    runtime.enqueue_zeros(packed, nbytes)
    runtime.enqueue_zeros(x, x_nbytes)
    fixed = {"packed": packed, "bias": None, "residual": None, "out": out, "column": 0, "n_rows": kind.n_rows}
    inputs = {argument: x for argument, *_ in kernel.arguments._fields_ if argument in ("x", "x_q16")}
    arguments = fill(kernel, fixed | inputs | {"n_out": n_out, "n_in": N_IN, "width_out": n_out})
    launch = (Launch * 1)()
    launch[0].function = function
    launch[0].arguments = ctypes.addressof(arguments)
    launch[0].arguments_nbytes = ctypes.sizeof(arguments)
    launch[0].grid[:] = (-(-n_out // (GROUP * kind.n_groups)), 1, 1)
    launch[0].n_threads = kernel.n_threads
    status = packing.launch(runtime.launch_address, launch, 1, runtime.stream)
    if status:
        raise runtime.error(status)
    runtime.synchronize()


def profile(emulator: ctypes.CDLL) -> list[tuple[str, int]]:
    """Each instruction of the last launch, and how often a wave ran it."""
    text = ctypes.create_string_buffer(emulator.emulatorProfile(None, 0) + 1)
    emulator.emulatorProfile(text, len(text))
    lines = (line.partition(" ") for line in text.value.decode().splitlines())
    return [(instruction, int(times)) for times, _, instruction in lines]


def summary(instructions: list[tuple[str, int]]) -> dict[str, object]:
    """Instructions by class; bytes that a lane moves, summed over waves; how often the busiest load was run."""
    classes: Counter[str] = Counter()
    for instruction, times in instructions:
        classes[instruction_class(instruction)] += times
    loads = [(load_nbytes(instruction), times) for instruction, times in instructions if load_nbytes(instruction)]
    return {
        "classes": dict(sorted(classes.items())),
        "lane_nbytes": sum(nbytes * times for nbytes, times in loads),
        "lds_nbytes": sum(lds_nbytes(instruction) * times for instruction, times in instructions),
        "rounds": max(times for _, times in loads),
    }


if __name__ == "__main__":
    main()
