"""Counts what the linear kernels' machine code runs for one row of activations, for `python -m hipfire.kernels.report`.

    PYTHONPATH=tests python benchmarks/gpu_instructions.py $(PYTHONPATH=tests python -m emulator.build build/emulator)

The library is the emulated libamdhip64 (docs/emulator.md). The counts go to hipfire/kernels/instruction_counts.json,
with hashes of the objects that they are of. They are exact and the same on every machine: nothing is timed. What a
kernel runs does not depend on the weights, so they are zeros.
"""

import argparse
import ctypes
import hashlib
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
from hipfire.kernels.instruction_counts import PATH, instruction_class, load_nbytes
from hipfire.kernels.library import Launch, Library
from hipfire.kernels.linear_kinds import GROUP, LinearKind, kinds_of
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
        "matrix": [N_OUT, N_IN],
        "objects": {arch: hashlib.sha256(code_objects(arch)["linear"]).hexdigest() for arch in ARCHITECTURES},
        "counts": {gpu.arch: counts_of(library, gpu, emulator, packing) for gpu in list_devices(library)},
    }
    PATH.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"written: {PATH}")


def counts_of(
    library: HipLibrary, gpu: GpuInfo, emulator: ctypes.CDLL, packing: Library
) -> dict[str, dict[str, object]]:
    """Of every kernel for one row, by its name."""
    runtime = Runtime(library, gpu.index)
    module = runtime.load_module(code_objects(gpu.arch)["linear"])
    counts = {}
    for name, dtype in DTYPES.items():
        nbytes = int(packing.packed_nbytes(packing.formats[name], N_OUT, N_IN))
        for kind, of in kinds_of(dtype).items():
            if of.n_rows == 1:
                kernel = f"linear_{name}_{kind}"
                run(runtime, packing, runtime.function(module, kernel), kernel, nbytes, of)
                counts[kernel] = {"weights_nbytes": nbytes, **summary(profile(emulator))}
        print(f"{gpu.arch} {name}")
    runtime.close()
    return counts


def run(runtime: Runtime, packing: Library, function: int, name: str, nbytes: int, kind: LinearKind) -> None:
    """One row of zeros times a matrix of zeros."""
    kernel = KERNELS[name]
    x_nbytes = 4 * N_IN
    packed, x, out = (
        runtime.allocate(size, what) for size, what in ((nbytes, "weights"), (x_nbytes, "x"), (4 * N_OUT, "out"))
    )
    runtime.enqueue_zeros(packed, nbytes)
    runtime.enqueue_zeros(x, x_nbytes)
    fixed = {"packed": packed, "bias": None, "residual": None, "out": out, "column": 0, "n_rows": 1}
    inputs = {argument: x for argument, *_ in kernel.arguments._fields_ if argument in ("x", "x_q16")}
    arguments = fill(kernel, fixed | inputs | {"n_out": N_OUT, "n_in": N_IN, "width_out": N_OUT})
    launch = (Launch * 1)()
    launch[0].function = function
    launch[0].arguments = ctypes.addressof(arguments)
    launch[0].arguments_nbytes = ctypes.sizeof(arguments)
    launch[0].grid[:] = (-(-N_OUT // (GROUP * kind.n_groups)), 1, 1)
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
    """Instructions by class; bytes that a lane loads, summed over waves; how often the busiest load was run."""
    classes: Counter[str] = Counter()
    for instruction, times in instructions:
        classes[instruction_class(instruction)] += times
    loads = [(load_nbytes(instruction), times) for instruction, times in instructions if load_nbytes(instruction)]
    return {
        "classes": dict(sorted(classes.items())),
        "lane_nbytes": sum(nbytes * times for nbytes, times in loads),
        "rounds": max(times for _, times in loads),
    }


if __name__ == "__main__":
    main()
