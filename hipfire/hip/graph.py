"""What was put into a stream as one HIP graph: captured once, launched as often as one likes."""

import ctypes
from collections.abc import Callable

from hipfire.hip.functions import CAPTURE_THREAD_LOCAL, GRAPH_FUNCTIONS
from hipfire.hip.library import HipLibrary
from hipfire.hip.runtime import Runtime

ROCM_5_5_1 = (5, 5, 30202)
ROCM_7_2 = (7, 2)


def graph_fault(library: HipLibrary, arch: str) -> str | None:
    """Why graphs of this library cannot be trusted on this architecture; None where nothing is known. Raises HipError.

    Sources: ROCm 5.2.3's release notes (a kernel that is captured twice keeps the second one's arguments) and
    https://github.com/oneapi-src/unified-runtime/pull/1447 (5.5.1 is the first that passes); for 7.2 on two cards
    https://github.com/ROCm/clr/issues/279 and https://github.com/ROCm/aiter/issues/3632 (garbage, now and then).
    """
    missing = [name for name in GRAPH_FUNCTIONS if not library.has(name)]
    if missing:
        return f"the runtime library has no {missing[0]}"
    version = library.version()
    text = ".".join(map(str, version))
    if version < ROCM_5_5_1:
        return f"those of HIP {text} lose kernels' arguments"
    if version[:2] == ROCM_7_2 and arch in {"gfx942", "gfx950"}:
        return f"those of HIP {text} give wrong results on {arch} now and then"
    return None


class Graph:
    """Work of a runtime's stream, with the arguments that it had when it was captured."""

    def __init__(self, runtime: Runtime, enqueue: Callable[[], None]) -> None:
        """Capture what `enqueue` puts into the stream, and run none of it. Raises HipError, also what `enqueue` raises;
        then the stream is as it was. It must not wait for the stream, nor allocate.

        By capture, for kernels of a code object cannot be added as nodes before ROCm 5.5, and bound to the thread, for
        relaxed capture crashes in threads other than the first on RDNA 2.
        """
        self._runtime = runtime
        library, captured, graph = runtime.library, ctypes.c_void_p(), ctypes.c_void_p()
        library.call("hipStreamBeginCapture", runtime.stream, CAPTURE_THREAD_LOCAL)
        try:
            try:
                enqueue()
            finally:
                status = library.status("hipStreamEndCapture", runtime.stream, ctypes.byref(captured))
            if status:
                raise library.error("hipStreamEndCapture", status)
            library.call("hipGraphInstantiateWithFlags", ctypes.byref(graph), captured, 0)
        finally:
            if captured.value:
                library.status("hipGraphDestroy", captured)
        self._handle = graph.value

    def launch(self) -> None:
        """Enqueue all of it. Raises HipError."""
        assert self._handle is not None
        self._runtime.library.call("hipGraphLaunch", self._handle, self._runtime.stream)

    def close(self) -> None:
        """Give it back, once the stream is empty. Idempotent."""
        handle, self._handle = self._handle, None
        if handle is not None and not self._runtime.is_lost:
            self._runtime.library.status("hipGraphExecDestroy", handle)
