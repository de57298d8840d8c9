"""One GPU in use: its memory, code objects and stream. Everything that is taken is given back by `close`."""

import ctypes
from contextlib import ExitStack
from typing import Any

from hipfire.errors import OutOfMemory
from hipfire.hip.functions import (
    DEVICE_TO_DEVICE,
    DEVICE_TO_HOST,
    HOST_COHERENT,
    HOST_MAPPED,
    HOST_TO_DEVICE,
    OUT_OF_MEMORY,
    STREAM_NON_BLOCKING,
)
from hipfire.hip.library import HipError, HipLibrary

MIB = 1 << 20

_LESS = "use a shorter context, fewer sequences or a smaller model, or close what else uses the GPU"


class Runtime:
    """Used by one thread at a time. Raises HipError, OutOfMemory."""

    def __init__(self, library: HipLibrary, index: int) -> None:
        self.library = library
        self._cleanup = ExitStack()
        self.is_lost = False
        """After a fault: every call fails, and the driver takes everything back with the process."""
        library.call("hipSetDevice", index)
        self.stream = self._new("hipStreamCreateWithFlags", "hipStreamDestroy", STREAM_NON_BLOCKING)
        self.launch_address = library.address("hipModuleLaunchKernel")

    def close(self) -> None:
        """Give back everything that was taken. Idempotent."""
        self._cleanup.close()

    def _new(self, name: str, destroy: str, *arguments: Any) -> int:
        handle = ctypes.c_void_p()
        self.library.call(name, ctypes.byref(handle), *arguments)
        value = handle.value or 0
        self._cleanup.callback(self._give_back, destroy, value)
        return value

    def _give_back(self, destroy: str, handle: int) -> None:
        if not self.is_lost:
            self.library.call(destroy, handle)

    def memory(self) -> tuple[int, int]:
        """Bytes that are free and that there are."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.library.call("hipMemGetInfo", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, nbytes: int, what: str) -> int:
        """Device memory; its address. Raises OutOfMemory that says what it was for."""
        try:
            return self._new("hipMalloc", "hipFree", max(nbytes, 1))
        except HipError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            free, total = (number // MIB for number in self.memory())
            message = f"{what} needs {-(-nbytes // MIB)} MiB of the GPU's memory, {free} of {total} MiB are free"
            raise OutOfMemory(message, hint=_LESS) from error

    def allocate_pinned(self, nbytes: int, what: str) -> int:
        """Host memory that the device copies from and to by itself; its address. Raises OutOfMemory."""
        try:
            return self._new("hipHostMalloc", "hipHostFree", max(nbytes, 1), HOST_MAPPED | HOST_COHERENT)
        except HipError as error:
            if error.status != OUT_OF_MEMORY:
                raise
            message = f"{what} needs {-(-nbytes // MIB)} MiB of the host's memory in one piece for the GPU to use"
            raise OutOfMemory(message, hint=_LESS) from error

    def device_address(self, pinned: int) -> int:
        """Where kernels find pinned host memory."""
        address = ctypes.c_void_p()
        self.library.call("hipHostGetDevicePointer", ctypes.byref(address), pinned, 0)
        return address.value or 0

    def upload(self, target: int, source: int, nbytes: int) -> None:
        """Host to device; the host's memory may be used again at once."""
        self.library.call("hipMemcpy", target, source, nbytes, HOST_TO_DEVICE)

    def download(self, target: int, source: int, nbytes: int) -> None:
        """Device to host, once the stream is empty."""
        self.synchronize()
        self.library.call("hipMemcpy", target, source, nbytes, DEVICE_TO_HOST)

    def enqueue_download(self, target: int, source: int, nbytes: int) -> None:
        """Device to pinned host memory, in the stream's order."""
        self.library.call("hipMemcpyAsync", target, source, nbytes, DEVICE_TO_HOST, self.stream)

    def enqueue_copy(self, target: int, source: int, nbytes: int) -> None:
        """Device to device, in the stream's order."""
        self.library.call("hipMemcpyAsync", target, source, nbytes, DEVICE_TO_DEVICE, self.stream)

    def enqueue_zeros(self, target: int, nbytes: int) -> None:
        """Zero device memory, in the stream's order."""
        self.library.call("hipMemsetAsync", target, 0, nbytes, self.stream)

    def synchronize(self) -> None:
        """Wait until the stream is empty. Raises HipError for what failed in it: the process has lost the GPU."""
        try:
            self.library.call("hipStreamSynchronize", self.stream)
        except HipError:
            self.is_lost = True
            raise

    def load_module(self, code: bytes) -> int:
        """Load a code object; its handle."""
        return self._new("hipModuleLoadData", "hipModuleUnload", code)

    def function(self, module: int, name: str) -> int:
        """The handle of a kernel."""
        handle = ctypes.c_void_p()
        self.library.call("hipModuleGetFunction", ctypes.byref(handle), module, name.encode())
        return handle.value or 0

    def error(self, status: int) -> HipError:
        """The exception for what native code got from `launch_address`."""
        return self.library.error("hipModuleLaunchKernel", status)
