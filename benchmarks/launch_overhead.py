"""What a decode step costs the host when the GPU costs nothing: a Program's launches, given to a null device.

One by one, and as a captured graph; and what it costs to capture that and to compare it.

    python benchmarks/launch_overhead.py [--layers 30] [--steps 2000] [--json]

The Program has SmolLM2-135M's shape and zeros for weights. Every function of HIP is one of libc that does nothing, so
what is measured is all that `HipExecutable.run` itself does for a token (check and write the step, one call that
launches the list or the graph, enqueue a copy, synchronise), and not what AMD's runtime adds to each launch and copy.
Processor time of the thread, for the machine may be busy.
"""

import argparse
import ctypes
import itertools
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from ctypes import POINTER, c_void_p
from pathlib import Path
from typing import Any

import numpy as np

from hipfire.devices.base import CancelFlag, Executable, Limits, Step
from hipfire.devices.hip import HipDevice
from hipfire.dtypes import DTYPES
from hipfire.formats.checkpoint import Checkpoint, Tensor
from hipfire.hip.device_list import GpuInfo
from hipfire.hip.functions import FUNCTIONS
from hipfire.hip.library import HipLibrary
from hipfire.kernels.library import Launch, Library
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.models.registry import build_program

N_EMBD, N_FF, N_HEADS, N_KV_HEADS, HEAD_DIM, N_VOCAB, MAX_SEQ = 576, 1536, 9, 3, 64, 49152, 2048
GOAL_US = 150
WARM_UP = 100
BATCH = 20
"""Steps between two looks at the clock, which takes its time too."""
GPU = GpuInfo(
    index=0, name="null", arch="gfx1100", pci="0000:00:00.0", uuid="", total_nbytes=1 << 34, n_compute_units=1,
    integrated=False,
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    native = CountingLibrary(load_variant(machine_variants()[0]).path)
    figures = {
        "layers": options.layers,
        "one_by_one": steps_us(options.layers, options.steps, native, graphs=False),
        "graph": steps_us(options.layers, options.steps, native, graphs=True),
        "goal_us": GOAL_US,
    }
    if options.json:
        print(json.dumps(figures | {"launches": native.n_launches}, indent=2))
        return
    print(f"{figures['layers']} layers, {native.n_launches} launches a step, {options.steps} steps")
    for name in ("one_by_one", "graph"):
        times_us = figures[name]
        assert isinstance(times_us, dict)
        print(
            f"  {name.replace('_', ' '):10}: median {times_us['median_us']:.0f} µs of host time a step, "
            f"{times_us['longest_us']:.0f} µs for the longest of the first ones"
        )
    print(f"  goal      : {GOAL_US} µs for 30 layers")


def steps_us(n_layers: int, n_steps: int, native: "CountingLibrary", *, graphs: bool) -> dict[str, float]:
    """Host time of steps, without the first ones; the longest of those makes a list, or captures and compares."""
    executable = load(n_layers, native, graphs=graphs)
    steps = list(decode_steps(WARM_UP + n_steps))
    first_us = [measure(executable, [step]) for step in steps[:WARM_UP]]
    batches_us = [measure(executable, steps[at : at + BATCH]) / BATCH for at in range(WARM_UP, len(steps), BATCH)]
    executable.close()
    return {"median_us": statistics.median(batches_us), "longest_us": max(first_us)}


class NullLibrary(HipLibrary):
    """HIP's functions, none of which does a thing but those that give memory and handles."""

    def __init__(self) -> None:
        self.path = "null"
        # Returns 0, whatever it is given.
        nothing = ctypes.cast(ctypes.CDLL(None).pthread_condattr_destroy, c_void_p).value
        assert nothing is not None
        self._functions = {
            name: ctypes.CFUNCTYPE(declaration.result, *declaration.arguments)(nothing)
            for name, declaration in FUNCTIONS.items()
        }
        self._memory: list[Any] = []
        addresses: Iterator[int] = itertools.count(1 << 40, 1 << 32)
        for name in (
            "hipMalloc", "hipStreamCreateWithFlags", "hipModuleLoadData", "hipModuleGetFunction",
            "hipGraphInstantiateWithFlags",
        ):  # fmt: skip
            self._functions[name] = lambda out, *_: give(out, next(addresses))
        self._functions["hipHostMalloc"] = self._host_memory
        self._functions["hipHostGetDevicePointer"] = lambda out, pinned, _: give(out, pinned)

    def version(self) -> tuple[int, int, int]:
        return 7, 0, 0

    def _host_memory(self, out: Any, nbytes: int, _flags: int) -> int:
        self._memory.append(ctypes.create_string_buffer(nbytes))
        return give(out, ctypes.addressof(self._memory[-1]))


def give(out: Any, value: int) -> int:
    """Put a value where `out` points; HIP's status of success."""
    ctypes.cast(out, POINTER(c_void_p))[0] = value
    return 0


class CountingLibrary(Library):
    """The native library, with the length of the last list that was launched."""

    n_launches = 0

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        launch = self.launch

        def counting(function: int, array: "ctypes.Array[Launch]", n: int, stream: int) -> int:
            self.n_launches = n
            return int(launch(function, array, n, stream))

        self.launch = counting


def load(n_layers: int, native: Library, *, graphs: bool) -> Executable:
    checkpoint = make_checkpoint(n_layers)
    tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
    limits = Limits(max_tokens=64, max_outputs=8, n_slots=1, max_seq=MAX_SEQ, graphs=graphs)
    device = HipDevice(NullLibrary(), GPU, native, 1)
    return device.load(build_program(checkpoint).program, tensors, limits, on_progress=lambda _: None)


def make_checkpoint(n_layers: int) -> Checkpoint:
    """Zeros in Q4_1."""
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (N_VOCAB, N_EMBD), "output_norm.weight": (N_EMBD,)}
    for layer in range(n_layers):
        of_layer = {
            "attn_norm": (N_EMBD,), "attn_q": (N_HEADS * HEAD_DIM, N_EMBD), "attn_k": (N_KV_HEADS * HEAD_DIM, N_EMBD),
            "attn_v": (N_KV_HEADS * HEAD_DIM, N_EMBD), "attn_output": (N_EMBD, N_HEADS * HEAD_DIM),
            "ffn_norm": (N_EMBD,), "ffn_gate": (N_FF, N_EMBD), "ffn_up": (N_FF, N_EMBD), "ffn_down": (N_EMBD, N_FF),
        }  # fmt: skip
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
    metadata = {
        "block_count": n_layers, "context_length": MAX_SEQ, "embedding_length": N_EMBD, "feed_forward_length": N_FF,
        "attention.head_count": N_HEADS, "attention.head_count_kv": N_KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-5, "rope.freq_base": 1e5,
    }  # fmt: skip
    return Checkpoint(
        path=Path("zeros"),
        architecture="llama",
        metadata={f"llama.{key}": value for key, value in metadata.items()},
        tensors={name: zeros(name, shape) for name, shape in shapes.items()},
        nbytes=0,
        rope_interleaved=True,
        close=lambda: None,
    )


def zeros(name: str, shape: tuple[int, ...]) -> Tensor:
    dtype = DTYPES["q4_1" if len(shape) == 2 else "f32"]
    return Tensor(name=name, dtype=dtype, shape=shape, data=np.zeros(dtype.nbytes(math.prod(shape)), np.uint8))


def decode_steps(n: int) -> Iterator[Step]:
    """One token after the other, over again when the context is full."""
    for position in itertools.islice(itertools.cycle(range(MAX_SEQ)), n):
        numbers = np.array([[1], [position], [0], [0]], np.int32)
        yield Step(
            token_ids=numbers[0], positions=numbers[1], slots=numbers[2], output_rows=numbers[3], n_best=1, whole=False
        )


def measure(executable: Executable, steps: Sequence[Step]) -> float:
    """Microseconds of all of them."""
    cancel = CancelFlag()
    begin = time.thread_time_ns()
    for step in steps:
        executable.run(step, cancel)
    return (time.thread_time_ns() - begin) / 1000


if __name__ == "__main__":
    main()
