"""Tests of the tests: kernels with a fault put in, each of which must be noticed, by the result or by the emulator."""

from collections.abc import Callable
from ctypes import c_int

import numpy as np
import pytest

from emulator.code_object import read_code_object
from emulator.conftest import ARCHS, MATRIX_ARCHS, KernelNamed, lanes_of
from emulator.decode import decode, family_of
from emulator.gpu import Gpu, GpuError, GpuFault, GpuKernel
from emulator.test_emulated_kernels import check_rmsnorm, check_softmax, floats

S_NOP = 0xBF800000
ROWS, N, THREADS = 3, 77, 64

CodeObjects = Callable[..., bytes]
Check = Callable[..., None]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.mark.parametrize("fault", ["DROP_LAST", "WRONG_SCALE"])
@pytest.mark.parametrize("check", [check_rmsnorm, check_softmax])
def test_wrong_results_are_beyond_the_tolerance(
    kernel: KernelNamed, rng: np.random.Generator, fault: str, check: Check
) -> None:
    def faulty(file: str, name: str) -> GpuKernel:
        return kernel(file, name, f"-D{fault}")

    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(faulty, rng, N, THREADS)


@pytest.mark.parametrize("check", [check_rmsnorm, check_softmax])
def test_row_too_far_is_out_of_bounds(kernel: KernelNamed, rng: np.random.Generator, check: Check) -> None:
    def faulty(file: str, name: str) -> GpuKernel:
        return kernel(file, name, "-DOFF_BY_ONE_ROW")

    with pytest.raises(
        GpuFault, match=r"out of bounds: lane 0 reads 4 bytes at 0x\w+, which is 4 bytes past the end of the near"
    ):
        check(faulty, rng, N, THREADS)


def test_missing_barrier_is_a_race(kernel: KernelNamed, rng: np.random.Generator) -> None:
    def faulty(file: str, name: str) -> GpuKernel:
        return kernel(file, name, "-DMISSING_BARRIER")

    with pytest.raises(
        GpuFault, match=r"race in LDS: lane \d+ of wave \d+ (reads|writes) byte 0x\w+, which wave \d+ (wrote|read)"
    ):
        check_softmax(faulty, rng, N, 256)


def test_writing_what_another_wave_still_reads_is_a_race(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, out = floats(rng, 256), np.zeros(256, np.float32)
    with pytest.raises(
        GpuFault, match=r"race in LDS: lane \d+ of wave \d+ writes byte 0x\w+, which wave \d+ read since"
    ):
        kernel("staged.hip", "reused")(a, out, c_int(256), grid=(1,), block=(256,))


def waits_of(code: bytes, arch: str, name: str) -> list[int]:
    """Where in a code object's file the waits of a kernel are, as offsets of their words."""
    found = read_code_object(code)
    entry = next(kernel.entry for kernel in found.kernels if kernel.name == name)
    start = code.index(found.code)
    waits = []
    for each in decode(found.code, family_of(arch)):
        if each.pc < entry or each.inst is None:
            continue
        text = repr(each.inst)
        if text.startswith("s_endpgm"):
            break
        if text.startswith("s_wait") and not text.startswith(("s_wait_alu", "s_waitcnt_depctr")):
            waits.append(start + each.pc)
    return waits


def without(code: bytes, *places: int) -> bytes:
    patched = bytearray(code)
    for place in places:
        patched[place : place + 4] = S_NOP.to_bytes(4, "little")
    return bytes(patched)


def test_each_missing_wait_is_noticed(gpu: Gpu, code_object: CodeObjects, arch: str, rng: np.random.Generator) -> None:
    code = code_object("staged.hip", arch)
    waits = waits_of(code, arch, "staged")
    kinds = set()
    for removed in [(), *((wait,) for wait in waits)]:
        a, out = floats(rng, 256), np.zeros(256, np.float32)
        staged = gpu.kernel(arch, without(code, *removed), "staged")
        if not removed:
            staged(a, out, c_int(256), grid=(1,), block=(256,))
            np.testing.assert_array_equal(out, a + np.roll(a, -1))
            continue
        with pytest.raises(GpuFault, match="missing wait: ") as caught:
            staged(a, out, c_int(256), grid=(1,), block=(256,))
        kinds.add("LDS store" if "an LDS store is outstanding at the barrier" in str(caught.value) else "register")
    assert len(waits) >= 4
    assert kinds == {"LDS store", "register"}


def test_report_names_the_place(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    a, b, out = floats(rng, N), floats(rng, N), np.zeros(N - 1, np.float32)
    with pytest.raises(GpuFault) as caught:
        kernel("elementwise.hip", "add")(a, b, out, c_int(N), grid=(1,), block=(128,))
    report = str(caught.value)
    lane = (N - 1) % lanes_of(arch)
    assert f"lane {lane} writes 4 bytes" in report
    assert "4 bytes past the end of the nearest allocation" in report
    assert f"{4 * (N - 1)} bytes, device memory" in report
    assert f"kernel add, workgroup (0, 0, 0), wave {(N - 1) // lanes_of(arch)}" in report
    assert "global_store" in report


def test_uninitialised_register(kernel: KernelNamed) -> None:
    out = np.zeros(N, np.float32)
    with pytest.raises(GpuFault, match="uninitialised: lane 0 fills memory by a register that nothing wrote"):
        kernel("memory.hip", "uninitialised")(out, c_int(N), grid=(1,), block=(128,))


def test_beyond_lds(kernel: KernelNamed) -> None:
    out = np.zeros(64, np.int32)
    with pytest.raises(
        GpuFault, match=r"out of bounds: lane (16|48) writes 4 bytes of LDS at 0x100; the workgroup has 0x100 bytes"
    ):
        kernel("memory.hip", "lds_beyond")(out, c_int(16), grid=(1,), block=(64,), lds_bytes=256)


def test_launch_that_never_ends(kernel: KernelNamed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HIP_EMULATOR_MAX_INSTRUCTIONS", "10000")
    with pytest.raises(GpuFault, match="endless: the launch ran 10000 instructions"):
        kernel("memory.hip", "endless")(np.zeros(1, np.int32), grid=(1,), block=(1,))


def test_matrix_rows_that_are_not_there_twice(gpu: Gpu, code_object: CodeObjects, rng: np.random.Generator) -> None:
    a, b, out = (
        floats(rng, 16, 16).astype(np.float16),
        floats(rng, 16, 16).astype(np.float16),
        np.zeros((16, 16), np.float32),
    )
    matmul = gpu.kernel("gfx1100", code_object("matrix.hip", "gfx1100"), "matmul_not_repeated")
    with pytest.raises(GpuFault, match="bad matrix operand: lanes 0 and 16 must hold the same row"):
        matmul(a, b, out, c_int(16), grid=(1,), block=(32,))


@pytest.mark.parametrize("arch", MATRIX_ARCHS)
def test_matrix_instruction_with_lanes_off(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    a, b, out = (
        floats(rng, 16, 16).astype(np.float16),
        floats(rng, 16, 16).astype(np.float16),
        np.zeros((16, 16), np.float32),
    )
    with pytest.raises(GpuFault, match="a matrix instruction needs every lane"):
        kernel("matrix.hip", "matmul_f16")(a, b, out, c_int(16), grid=(1,), block=(lanes_of(arch) // 2,))


def test_unknown_instruction_faults_when_it_is_run(gpu: Gpu, code_object: CodeObjects, arch: str) -> None:
    code = bytearray(code_object("elementwise.hip", arch))
    found = read_code_object(bytes(code))
    entry = next(kernel.entry for kernel in found.kernels if kernel.name == "add")
    place = bytes(code).index(found.code) + entry
    code[place : place + 4] = b"\xff\xff\xff\xbf"
    out = np.zeros(1, np.float32)
    with pytest.raises(GpuFault, match=r"unsupported: instruction 0xbfffffff \(not an instruction of gfx\w+\)"):
        gpu.kernel(arch, bytes(code), "add")(out, out, out, c_int(1), grid=(1,), block=(1,))
    other = gpu.kernel(arch, bytes(code), "copy_4")
    other(np.zeros(1, np.uint32), np.zeros(1, np.uint32), c_int(1), grid=(1,), block=(1,))


def test_sizes_of_launches_are_checked(gpu: Gpu, code_object: CodeObjects) -> None:
    add = gpu.kernel(ARCHS[0], code_object("elementwise.hip", ARCHS[0]), "add")
    out = np.zeros(1, np.float32)
    for shape in (
        {"grid": (1,), "block": (1025,)},
        {"grid": (0,), "block": (1,)},
        {"grid": (1,), "block": (1,), "lds_bytes": 65537},
    ):
        with pytest.raises(GpuError, match="hipErrorInvalidConfiguration"):
            add(out, out, out, c_int(1), **shape)
