# ruff: noqa: SLF001  (a step is taken down from the executable's own memory, which is nobody else's business)
"""The kernels as ARM machine code, run by an emulator: the same results as on this machine.

The library is cross-compiled into a program (`replay.c`) that reads a step as it lies in memory here, runs it, and
writes the logits. Where this machine has fused multiply-add as ARM has, even the bits are the same.
"""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from one_product import N_IN, N_OUT, load, random_weight

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.cpu import CpuDevice, CpuExecutable
from hipfire.dtypes import DTYPES, DType
from hipfire.formats.open import open_checkpoint
from hipfire.kernels.build import SOURCES, VARIANTS, compile_executable
from hipfire.kernels.library import CpuStep
from hipfire.kernels.select import machine_variants
from hipfire.models.registry import build_program

EMULATOR = "qemu-aarch64"
HERE = Path(__file__).parent
TINY_LLAMA = HERE.parents[1] / "fixtures" / "tiny-llama" / "model.gguf"


@pytest.fixture(scope="session")
def replay(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that runs `replay.c` with the ARM kernels."""
    emulator = shutil.which(EMULATOR)
    if emulator is None:
        message = f"{EMULATOR} is not installed: apt-get install qemu-user"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    program = tmp_path_factory.mktemp("aarch64") / "replay"
    (variant,) = (row for row in VARIANTS if row.name == "aarch64")
    compile_executable(variant, [*sorted(SOURCES.glob("*.c")), HERE / "replay.c"], program)
    return [emulator, str(program)]


def numbers(*values: int) -> bytes:
    return np.array(values, np.int64).tobytes()


def run_elsewhere(command: list[str], data: bytes) -> bytes:
    done = subprocess.run(command, input=data, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def replayed(command: list[str], executable: CpuExecutable, step: Step, n_threads: int) -> NDArray[np.float32]:
    """The logits of a step that another program runs on a copy of the executable's memory."""
    inputs = (step.token_ids, step.positions, step.slots, step.output_rows)
    native = CpuStep(*(values.ctypes.data for values in inputs), len(step.token_ids), len(step.output_rows))
    held = [executable._arena, *executable._vectors.values(), *executable._packed.values(), *inputs]
    held += executable._states.values()
    regions = [(array.ctypes.data, array.tobytes()) for array in held if array.nbytes]
    structs = [executable._ops, native, *executable._addresses.arrays]
    regions += [(address_of(struct), bytes(struct)) for struct in structs]
    logits = executable._view(executable._program.logits)[: len(step.output_rows)]
    scratch = executable._scratch_nbytes()
    message = [numbers(len(regions))]
    message += [numbers(address, len(data)) + data for address, data in regions]
    message += [numbers(address_of(executable._ops), len(executable._ops), address_of(native))]
    message += [numbers(logits.ctypes.data, logits.nbytes, n_threads, scratch)]
    found = run_elsewhere(command, b"".join(message))
    return np.frombuffer(found, np.float32).reshape(logits.shape)


def address_of(struct: object) -> int:
    return int(np.frombuffer(struct, np.uint8).ctypes.data)  # type: ignore[call-overload]


def make_step(ids: list[int]) -> Step:
    rows = np.arange(len(ids), dtype=np.int32)
    return Step(token_ids=np.array(ids, np.int32), positions=rows, slots=np.zeros_like(rows), output_rows=rows)


def assert_same(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    if machine_variants()[0] != "x86_64":
        np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_products_of_every_format(replay: list[str], dtype: DType) -> None:
    rng = np.random.default_rng(23)
    inputs = rng.standard_normal((300, N_IN)).astype(np.float32)
    executable = load(dtype, random_weight(dtype, 23), inputs, variant=machine_variants()[0])
    for ids in ([5], [1, 2, 3, 4, 5, 6, 7]):
        step = make_step(ids)
        expected = executable.run(step, CancelFlag()).whole().copy()
        executable._view(executable._program.logits)[:] = 0
        assert_same(replayed(replay, executable, step, 2), expected)


@pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
def test_packing_of_every_format(replay: list[str], dtype: DType) -> None:
    raw = random_weight(dtype, 29)
    executable = load(dtype, raw, np.ones((300, N_IN), np.float32), variant=machine_variants()[0])
    number = executable._library.formats[dtype.name]
    found = run_elsewhere([*replay, "pack"], numbers(number, N_OUT, N_IN, len(raw)) + raw.tobytes())
    assert found == executable._packed["weight"].tobytes()


@pytest.mark.parametrize("kv_cache", ["q16", "q8", "f16", "f32"])
def test_a_whole_model(replay: list[str], kv_cache: str) -> None:
    with open_checkpoint(TINY_LLAMA) as checkpoint:
        program = build_program(checkpoint).program
        tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
        limits = Limits(max_tokens=64, max_outputs=64, n_slots=1, max_seq=64, kv_cache=kv_cache)
        executable = CpuDevice.open(1).load(program, tensors, limits, on_progress=lambda fraction: None)
    step = make_step([1 + 7 * i % 500 for i in range(41)])
    expected = executable.run(step, CancelFlag()).whole().copy()
    for state in executable._states.values():
        state[:] = 0
    executable._arena[:] = 0
    # cos and sin are another C library's there, so the last bit may differ.
    np.testing.assert_allclose(replayed(replay, executable, step, 3), expected, rtol=1e-4, atol=1e-4)
