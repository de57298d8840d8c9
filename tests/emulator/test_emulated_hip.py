"""HIP's entry points of the emulated library, called as a binding would: by ctypes, or by a program of its own."""

import ctypes
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from ctypes import byref, c_char_p, c_float, c_int, c_size_t, c_void_p
from pathlib import Path

import numpy as np
import pytest

from emulator.conftest import ARCHS

SUCCESS, INVALID_VALUE, OUT_OF_MEMORY, NO_DEVICE, INVALID_DEVICE = 0, 1, 2, 100, 101
NO_BINARY, INVALID_IMAGE, NOT_FOUND, NOT_READY, ILLEGAL_ADDRESS = 209, 200, 500, 600, 700
TO_DEVICE, TO_HOST = 1, 2
N = 300


def new_buffer(hip: ctypes.CDLL, nbytes: int) -> c_void_p:
    pointer = c_void_p()
    assert hip.hipMalloc(byref(pointer), c_size_t(nbytes)) == SUCCESS
    return pointer


def pinned_floats(hip: ctypes.CDLL, n: int) -> tuple[c_void_p, np.ndarray]:
    pointer = c_void_p()
    assert hip.hipHostMalloc(byref(pointer), c_size_t(4 * n), 0) == SUCCESS
    return pointer, np.ctypeslib.as_array((c_float * n).from_address(pointer.value or 0))


def launch_packed(
    hip: ctypes.CDLL, function: c_void_p, stream: c_void_p | None, a: c_void_p, b: c_void_p, out: c_void_p, n: int
) -> int:
    packed = struct.pack("<QQQi", a.value, b.value, out.value, n)
    size = c_size_t(len(packed))
    extra = (c_void_p * 5)(1, ctypes.cast(c_char_p(packed), c_void_p), 2, ctypes.addressof(size), 3)
    return int(hip.hipModuleLaunchKernel(function, 3, 1, 1, 128, 1, 1, 0, stream, None, extra))


def test_devices_and_their_properties(hip: ctypes.CDLL) -> None:
    count, current, value = c_int(), c_int(), c_int()
    assert hip.hipInit(0) == SUCCESS
    assert hip.hipGetDeviceCount(byref(count)) == SUCCESS
    assert count.value == len(ARCHS)
    assert hip.hipSetDevice(len(ARCHS)) == INVALID_DEVICE
    assert hip.hipGetDevice(byref(current)) == SUCCESS
    assert current.value == 0
    for device, arch in enumerate(ARCHS):
        new, old = ctypes.create_string_buffer(1472), ctypes.create_string_buffer(792)
        assert hip.hipGetDevicePropertiesR0600(new, device) == SUCCESS
        assert hip.hipGetDeviceProperties(old, device) == SUCCESS
        assert new.raw[1160:].split(b"\0")[0] == old.raw[396:].split(b"\0")[0] == arch.encode()
        assert new.raw[288:296] == old.raw[256:264] == (16 << 30).to_bytes(8, "little")
        lanes = 64 if arch.startswith("gfx9") else 32
        assert struct.unpack_from("<i", new.raw, 308)[0] == struct.unpack_from("<i", old.raw, 276)[0] == lanes
        assert hip.hipDeviceGetAttribute(byref(value), 87, device) == SUCCESS
        assert value.value == lanes
        address = ctypes.create_string_buffer(32)
        assert hip.hipDeviceGetPCIBusId(address, 32, device) == SUCCESS
        assert address.value == f"0000:{3 + device:02x}:00.0".encode()


def test_profile_counts_what_each_wave_ran(hip: ctypes.CDLL, add: c_void_p) -> None:
    a, b, out = (new_buffer(hip, 4 * N) for _ in range(3))
    for buffer in (a, b):
        assert hip.hipMemset(buffer, 0, c_size_t(4 * N)) == SUCCESS
    assert launch_packed(hip, add, None, a, b, out, N) == SUCCESS
    assert hip.hipDeviceSynchronize() == SUCCESS
    text = ctypes.create_string_buffer(hip.emulatorProfile(None, c_size_t(0)) + 1)
    assert hip.emulatorProfile(text, c_size_t(len(text))) == len(text) - 1
    lines = [line.partition(" ") for line in text.value.decode().splitlines()]
    times = {what.partition("(")[0]: int(number) for number, _, what in lines}
    # Of the three workgroups' twelve waves two are past the end, whole: they take no part in the addition.
    assert (times["v_add_f32_e32"], times["global_store_b32"], times["s_endpgm"]) == (10, 10, 12)
    short = ctypes.create_string_buffer(10)
    assert hip.emulatorProfile(short, c_size_t(10)) == len(text) - 1
    assert short.value == text.value[:9]
    for buffer in (a, b, out):
        assert hip.hipFree(buffer) == SUCCESS


def test_memory_is_counted_and_ends(hip: ctypes.CDLL) -> None:
    free, total, after = c_size_t(), c_size_t(), c_size_t()
    assert hip.hipMemGetInfo(byref(free), byref(total)) == SUCCESS
    buffer = new_buffer(hip, 1 << 20)
    assert hip.hipMemGetInfo(byref(after), byref(total)) == SUCCESS
    assert free.value - after.value == 1 << 20
    assert hip.hipMalloc(byref(c_void_p()), c_size_t(after.value + 1)) == OUT_OF_MEMORY
    assert hip.hipFree(buffer) == SUCCESS
    assert hip.hipFree(buffer) == INVALID_VALUE
    assert hip.hipMemGetInfo(byref(after), byref(total)) == SUCCESS
    assert after.value == free.value


def test_copies_must_lie_within_buffers(hip: ctypes.CDLL) -> None:
    buffer, data = new_buffer(hip, 100), ctypes.create_string_buffer(200)
    assert hip.hipMemcpy(buffer, data, c_size_t(100), TO_DEVICE) == SUCCESS
    assert hip.hipMemcpy(buffer, data, c_size_t(101), TO_DEVICE) == INVALID_VALUE
    assert hip.hipMemcpy(data, c_void_p((buffer.value or 0) + 1), c_size_t(100), TO_HOST) == INVALID_VALUE
    assert hip.hipMemset(buffer, 7, c_size_t(100)) == SUCCESS
    assert hip.hipMemcpy(data, buffer, c_size_t(100), TO_HOST) == SUCCESS
    assert data.raw == b"\7" * 100 + b"\0" * 100
    assert hip.hipFree(buffer) == SUCCESS


def test_fresh_memory_holds_nans(hip: ctypes.CDLL) -> None:
    buffer, data = new_buffer(hip, 8), np.zeros(2, np.float32)
    assert hip.hipMemcpy(c_void_p(data.ctypes.data), buffer, c_size_t(8), TO_HOST) == SUCCESS
    assert np.isnan(data).all()
    assert hip.hipFree(buffer) == SUCCESS


def test_stream_runs_when_it_is_waited_for(hip: ctypes.CDLL, add: c_void_p) -> None:
    stream, event = c_void_p(), c_void_p()
    assert hip.hipStreamCreateWithFlags(byref(stream), 1) == SUCCESS
    assert hip.hipEventCreateWithFlags(byref(event), 2) == SUCCESS
    source, values = pinned_floats(hip, N)
    target, results = pinned_floats(hip, N)
    buffer, out = new_buffer(hip, 4 * N), new_buffer(hip, 4 * N)
    values[:], results[:] = 0, 0
    assert hip.hipMemcpyAsync(buffer, source, c_size_t(4 * N), TO_DEVICE, stream) == SUCCESS
    values[:] = np.arange(N)  # pinned memory is read when the copy runs, not when it is queued
    assert launch_packed(hip, add, stream, buffer, buffer, out, N) == SUCCESS
    assert hip.hipMemcpyAsync(target, out, c_size_t(4 * N), TO_HOST, stream) == SUCCESS
    assert hip.hipEventRecord(event, stream) == SUCCESS
    assert hip.hipEventQuery(event) == NOT_READY
    assert not results.any()
    assert hip.hipEventSynchronize(event) == SUCCESS
    np.testing.assert_array_equal(results, 2 * np.arange(N))
    assert hip.hipStreamQuery(stream) == SUCCESS
    assert hip.hipEventDestroy(event) == hip.hipStreamDestroy(stream) == SUCCESS
    for pointer in (source, target):
        assert hip.hipHostFree(pointer) == SUCCESS
    for pointer in (buffer, out):
        assert hip.hipFree(pointer) == SUCCESS


def test_streams_wait_for_events_of_others(hip: ctypes.CDLL) -> None:
    streams, event = [c_void_p(), c_void_p()], c_void_p()
    for stream in streams:
        assert hip.hipStreamCreate(byref(stream)) == SUCCESS
    assert hip.hipEventCreate(byref(event)) == SUCCESS
    buffer, copy = new_buffer(hip, 16), new_buffer(hip, 16)
    assert hip.hipMemsetAsync(buffer, 5, c_size_t(16), streams[0]) == SUCCESS
    assert hip.hipEventRecord(event, streams[0]) == SUCCESS
    assert hip.hipStreamWaitEvent(streams[1], event, 0) == SUCCESS
    assert hip.hipMemcpyDtoDAsync(copy, buffer, c_size_t(16), streams[1]) == SUCCESS
    assert hip.hipStreamSynchronize(streams[1]) == SUCCESS
    data = ctypes.create_string_buffer(16)
    assert hip.hipMemcpyDtoH(data, copy, c_size_t(16)) == SUCCESS
    assert data.raw == b"\5" * 16
    assert [hip.hipStreamDestroy(stream) for stream in streams] == [SUCCESS, SUCCESS]
    assert hip.hipEventDestroy(event) == hip.hipFree(buffer) == hip.hipFree(copy) == SUCCESS


def test_fault_is_the_answer_to_every_later_call(hip: ctypes.CDLL, add: c_void_p) -> None:
    buffer = new_buffer(hip, 4 * N)
    assert launch_packed(hip, add, None, buffer, buffer, buffer, N + 1) == SUCCESS
    assert hip.hipDeviceSynchronize() == ILLEGAL_ADDRESS
    assert b"out of bounds" in hip.emulatorLastFault()
    assert hip.hipMalloc(byref(c_void_p()), c_size_t(1)) == ILLEGAL_ADDRESS
    assert hip.hipMemcpy(buffer, b"12345678", c_size_t(8), TO_DEVICE) == ILLEGAL_ADDRESS
    assert hip.hipGetLastError() == ILLEGAL_ADDRESS
    hip.emulatorClearFault()
    assert hip.hipFree(buffer) == SUCCESS


def test_freed_memory_may_not_be_touched(hip: ctypes.CDLL, add: c_void_p) -> None:
    kept, freed = new_buffer(hip, 4 * N), new_buffer(hip, 4 * N)
    assert launch_packed(hip, add, None, kept, freed, kept, N) == SUCCESS
    assert hip.hipDeviceSynchronize() == SUCCESS
    assert hip.hipFree(freed) == SUCCESS
    assert launch_packed(hip, add, None, kept, freed, kept, N) == SUCCESS
    assert hip.hipDeviceSynchronize() == ILLEGAL_ADDRESS
    hip.emulatorClearFault()
    assert hip.hipFree(kept) == SUCCESS


def test_packed_arguments_must_be_complete(hip: ctypes.CDLL, add: c_void_p) -> None:
    packed, size = ctypes.create_string_buffer(28), c_size_t(27)
    extra = (c_void_p * 5)(1, ctypes.addressof(packed), 2, ctypes.addressof(size), 3)
    assert hip.hipModuleLaunchKernel(add, 1, 1, 1, 1, 1, 1, 0, None, None, extra) == INVALID_VALUE


def test_modules_that_do_not_fit(hip: ctypes.CDLL, code_object: Callable[..., bytes]) -> None:
    module, function = c_void_p(), c_void_p()
    assert hip.hipModuleLoadData(byref(module), code_object("elementwise.hip", ARCHS[1])) == NO_BINARY
    assert hip.hipModuleLoadData(byref(module), b"\0" * 100) == INVALID_IMAGE
    assert hip.hipModuleLoadData(byref(module), code_object("elementwise.hip", ARCHS[0])) == SUCCESS
    assert hip.hipModuleGetFunction(byref(function), module, b"absent") == NOT_FOUND
    assert hip.hipGetErrorName(NOT_FOUND) == b"hipErrorNotFound"
    assert hip.hipModuleUnload(module) == SUCCESS


COUNT = """
import ctypes, sys
hip, n = ctypes.CDLL(sys.argv[1]), ctypes.c_int()
print(hip.hipInit(0), hip.hipGetDeviceCount(ctypes.byref(n)), n.value)
"""

LOAD = """
import ctypes, sys
hip, module = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
print(hip.hipModuleLoad(ctypes.byref(module), sys.argv[2].encode()))
"""


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, f"{NO_DEVICE} {NO_DEVICE} 0"),
        ({"HIP_EMULATOR_ARCH": "gfx1100"}, "0 0 1"),
        ({"HIP_EMULATOR_ARCH": "gfx1100,gfx942", "HIP_VISIBLE_DEVICES": "1"}, "0 0 1"),
        ({"HIP_EMULATOR_ARCH": "gfx1100", "HIP_VISIBLE_DEVICES": ""}, f"{NO_DEVICE} {NO_DEVICE} 0"),
    ],
)
def test_devices_are_named_in_the_environment(
    emulated_library: Path, environment: dict[str, str], expected: str
) -> None:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("HIP_")}
    command = [sys.executable, "-c", COUNT, str(emulated_library)]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected


def test_translates_in_a_process_without_a_python_path(
    emulated_library: Path, tmp_path: Path, code_object: Callable[..., bytes]
) -> None:
    (tmp_path / "good.hsaco").write_bytes(code_object("staged.hip", ARCHS[0]))
    (tmp_path / "bad.hsaco").write_bytes(code_object("staged.hip", ARCHS[0]).replace(b"AMDGPU\0", b"amdgpu\0"))
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("HIP_", "PYTHON"))}
    environment = clean | {"HIP_EMULATOR_ARCH": ARCHS[0], "HIP_EMULATOR_CACHE": str(tmp_path / "cache")}
    for name, expected in (("good", SUCCESS), ("bad", INVALID_IMAGE)):
        command = [sys.executable, "-c", LOAD, str(emulated_library), str(tmp_path / f"{name}.hsaco")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == str(expected)
    assert "no AMDGPU metadata note" in done.stderr
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".emu"]
