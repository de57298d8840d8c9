"""Capture and graphs of the emulated library, with HIP's errors for what may not be done."""

import ctypes
import threading
from collections.abc import Callable, Iterator
from ctypes import byref, c_int, c_size_t, c_void_p

import numpy as np
import pytest

from emulator.conftest import ARCHS
from emulator.test_emulated_hip import (
    ILLEGAL_ADDRESS,
    INVALID_VALUE,
    SUCCESS,
    TO_DEVICE,
    TO_HOST,
    N,
    launch_packed,
    new_buffer,
    pinned_floats,
)

ILLEGAL_STATE, UNSUPPORTED, INVALIDATED, WRONG_THREAD = 401, 900, 901, 908
GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NOT_CAPTURING, CAPTURING, INVALID = 0, 1, 2

Call = Callable[[ctypes.CDLL, c_void_p], int]


@pytest.fixture
def stream(hip: ctypes.CDLL) -> Iterator[c_void_p]:
    stream = c_void_p()
    assert hip.hipStreamCreate(byref(stream)) == SUCCESS
    yield stream
    hip.emulatorClearFault()
    assert hip.hipStreamDestroy(stream) == SUCCESS


@pytest.fixture
def buffers(hip: ctypes.CDLL) -> Iterator[list[c_void_p]]:
    """Ones, and room for a result."""
    made = [new_buffer(hip, 4 * N) for _ in range(2)]
    ones = np.ones(N, np.float32)
    assert hip.hipMemcpy(made[0], c_void_p(ones.ctypes.data), c_size_t(4 * N), TO_DEVICE) == SUCCESS
    yield made
    hip.emulatorClearFault()
    for buffer in made:
        hip.hipFree(buffer)


def capture_status(hip: ctypes.CDLL, stream: c_void_p) -> int:
    status = c_int()
    assert hip.hipStreamIsCapturing(stream, byref(status)) == SUCCESS
    return status.value


def ended(hip: ctypes.CDLL, stream: c_void_p) -> c_void_p:
    """What was captured, made ready to be launched."""
    graph, executable = c_void_p(), c_void_p()
    assert hip.hipStreamEndCapture(stream, byref(graph)) == SUCCESS
    assert hip.hipGraphInstantiateWithFlags(byref(executable), graph, ctypes.c_ulonglong(0)) == SUCCESS
    assert hip.hipGraphDestroy(graph) == SUCCESS
    assert hip.hipGraphDestroy(graph) == INVALID_VALUE
    return executable


def result(hip: ctypes.CDLL, buffer: c_void_p) -> np.ndarray:
    found = np.zeros(N, np.float32)
    assert hip.hipMemcpy(c_void_p(found.ctypes.data), buffer, c_size_t(4 * N), TO_HOST) == SUCCESS
    return found


def test_a_graph_replays_what_was_captured(hip: ctypes.CDLL, add: c_void_p, stream: c_void_p) -> None:
    source, values = pinned_floats(hip, N)
    target, results = pinned_floats(hip, N)
    buffer, out = new_buffer(hip, 4 * N), new_buffer(hip, 4 * N)
    assert hip.hipStreamBeginCapture(stream, THREAD_LOCAL) == SUCCESS
    assert hip.hipStreamBeginCapture(stream, THREAD_LOCAL) == ILLEGAL_STATE
    assert capture_status(hip, stream) == CAPTURING
    assert hip.hipMemcpyAsync(buffer, source, c_size_t(4 * N), TO_DEVICE, stream) == SUCCESS
    # The order is kept: each reads what the one before wrote. Arguments are copied when they are captured.
    assert launch_packed(hip, add, stream, buffer, buffer, out, N) == SUCCESS
    assert launch_packed(hip, add, stream, buffer, out, out, N) == SUCCESS
    assert hip.hipMemcpyAsync(target, out, c_size_t(4 * N), TO_HOST, stream) == SUCCESS
    executable = ended(hip, stream)
    assert capture_status(hip, stream) == NOT_CAPTURING
    for factor in (1, 10):
        assert hip.hipGraphLaunch(executable, stream) == SUCCESS
        # It runs as late as HIP allows: what is written now is what it reads.
        values[:], results[:] = factor * np.arange(N), 0
        assert not results.any()
        assert hip.hipStreamSynchronize(stream) == SUCCESS
        np.testing.assert_array_equal(results, 3 * factor * np.arange(N))
    assert hip.hipGraphExecDestroy(executable) == SUCCESS
    assert hip.hipFree(buffer) == hip.hipFree(out) == hip.hipHostFree(source) == hip.hipHostFree(target) == SUCCESS


def test_what_is_destroyed_cannot_be_launched(
    hip: ctypes.CDLL, add: c_void_p, stream: c_void_p, buffers: list[c_void_p]
) -> None:
    graph = c_void_p()
    assert hip.hipStreamEndCapture(stream, byref(graph)) == ILLEGAL_STATE
    assert hip.hipStreamBeginCapture(stream, RELAXED) == SUCCESS
    assert launch_packed(hip, add, stream, buffers[0], buffers[0], buffers[1], N) == SUCCESS
    executable = ended(hip, stream)
    assert hip.hipGraphLaunch(executable, stream) == SUCCESS
    assert hip.hipGraphExecDestroy(executable) == SUCCESS
    assert hip.hipGraphLaunch(executable, stream) == hip.hipGraphExecDestroy(executable) == INVALID_VALUE
    # What was launched before still runs.
    assert hip.hipStreamSynchronize(stream) == SUCCESS
    np.testing.assert_array_equal(result(hip, buffers[1]), np.full(N, 2))


FORBIDDEN: dict[str, Call] = {
    "wait for the stream": lambda hip, stream: hip.hipStreamSynchronize(stream),
    "ask the stream": lambda hip, stream: hip.hipStreamQuery(stream),
    "wait for the device": lambda hip, stream: hip.hipDeviceSynchronize(),
    "allocate": lambda hip, stream: hip.hipMalloc(byref(c_void_p()), c_size_t(1)),
    "allocate on the host": lambda hip, stream: hip.hipHostMalloc(byref(c_void_p()), c_size_t(1), 0),
    "free": lambda hip, stream: hip.hipFree(c_void_p(1)),
    "copy and wait": lambda hip, stream: hip.hipMemcpy(ctypes.create_string_buffer(1), b"1", c_size_t(1), 0),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_what_may_not_be_done_makes_a_capture_invalid(
    hip: ctypes.CDLL, add: c_void_p, stream: c_void_p, buffers: list[c_void_p], what: str
) -> None:
    graph = c_void_p(7)
    assert hip.hipStreamBeginCapture(stream, GLOBAL) == SUCCESS
    assert launch_packed(hip, add, stream, buffers[0], buffers[0], buffers[1], N) == SUCCESS
    assert FORBIDDEN[what](hip, stream) == UNSUPPORTED
    assert capture_status(hip, stream) == INVALID
    assert launch_packed(hip, add, stream, buffers[0], buffers[0], buffers[1], N) == INVALIDATED
    assert hip.hipStreamEndCapture(stream, byref(graph)) == INVALIDATED
    assert graph.value is None
    assert capture_status(hip, stream) == NOT_CAPTURING
    assert launch_packed(hip, add, stream, buffers[0], buffers[0], buffers[1], N) == SUCCESS
    assert hip.hipStreamSynchronize(stream) == SUCCESS


@pytest.mark.parametrize(
    ("mode", "own", "others"), [(GLOBAL, True, True), (THREAD_LOCAL, True, False), (RELAXED, False, False)]
)
def test_a_mode_says_whose_calls_matter(hip: ctypes.CDLL, stream: c_void_p, mode: int, own: bool, others: bool) -> None:
    graph, statuses = c_void_p(), []

    def of_another_thread() -> None:
        statuses.append(hip.hipMemset(c_void_p(), 0, c_size_t(0)))
        statuses.append(hip.hipStreamEndCapture(stream, byref(graph)))

    assert hip.hipStreamBeginCapture(stream, mode) == SUCCESS
    thread = threading.Thread(target=of_another_thread)
    thread.start()
    thread.join()
    assert (statuses[0] == UNSUPPORTED) == others
    assert (statuses[1] == WRONG_THREAD) == (mode != RELAXED)
    if mode == RELAXED:
        assert hip.hipStreamBeginCapture(stream, mode) == SUCCESS
    assert (hip.hipDeviceSynchronize() == UNSUPPORTED) == own
    assert hip.hipStreamEndCapture(stream, byref(graph)) == (INVALIDATED if own else SUCCESS)


def test_a_graph_whose_memory_is_gone_is_a_fault(
    hip: ctypes.CDLL, add: c_void_p, stream: c_void_p, buffers: list[c_void_p]
) -> None:
    freed = new_buffer(hip, 4 * N)
    assert hip.hipStreamBeginCapture(stream, THREAD_LOCAL) == SUCCESS
    assert launch_packed(hip, add, stream, buffers[0], freed, buffers[1], N) == SUCCESS
    executable = ended(hip, stream)
    assert hip.hipStreamBeginCapture(stream, THREAD_LOCAL) == SUCCESS
    assert hip.hipMemsetAsync(freed, 0, c_size_t(4 * N), stream) == SUCCESS
    fills = ended(hip, stream)
    assert hip.hipFree(freed) == SUCCESS
    assert hip.hipGraphLaunch(executable, stream) == SUCCESS
    assert hip.hipStreamSynchronize(stream) == ILLEGAL_ADDRESS
    assert b"out of bounds" in hip.emulatorLastFault()
    hip.emulatorClearFault()
    assert hip.hipGraphLaunch(fills, stream) == ILLEGAL_ADDRESS
    assert b"memory that was freed" in hip.emulatorLastFault()
    hip.emulatorClearFault()
    assert hip.hipGraphExecDestroy(executable) == hip.hipGraphExecDestroy(fills) == SUCCESS


def test_a_graph_whose_module_is_gone_is_a_fault(
    hip: ctypes.CDLL, stream: c_void_p, buffers: list[c_void_p], code_object: Callable[..., bytes]
) -> None:
    module, function = c_void_p(), c_void_p()
    assert hip.hipModuleLoadData(byref(module), code_object("elementwise.hip", ARCHS[0])) == SUCCESS
    assert hip.hipModuleGetFunction(byref(function), module, b"add") == SUCCESS
    assert hip.hipStreamBeginCapture(stream, THREAD_LOCAL) == SUCCESS
    assert launch_packed(hip, function, stream, buffers[0], buffers[0], buffers[1], N) == SUCCESS
    executable = ended(hip, stream)
    assert hip.hipModuleUnload(module) == SUCCESS
    assert hip.hipGraphLaunch(executable, stream) == ILLEGAL_ADDRESS
    assert b"a module that was unloaded" in hip.emulatorLastFault()
    hip.emulatorClearFault()
    assert hip.hipGraphExecDestroy(executable) == SUCCESS
