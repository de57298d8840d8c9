"""A small way to call an emulated GPU: NumPy arrays in and out, faults as exceptions.

Only a few of HIP's entry points, by ctypes, as a program on a real GPU would call them. A library holds its devices
for the whole process, and they are named in the environment when it is first called.
"""

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from emulator.translate import translate

HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2


class GpuError(Exception):
    """A call to HIP failed; the message is HIP's name for it."""


class GpuFault(GpuError):
    """A kernel did something wrong; the message is the emulator's report."""


class Gpu:
    """The devices of one emulated library."""

    def __init__(self, library: Path, archs: Sequence[str], cache: Path) -> None:
        os.environ["HIP_EMULATOR_ARCH"] = ",".join(archs)
        os.environ["HIP_EMULATOR_CACHE"] = str(cache)
        self.library = ctypes.CDLL(str(library))
        self.library.emulatorLastFault.restype = ctypes.c_char_p
        self.library.emulatorInstructionsRun.restype = ctypes.c_uint64
        self.library.hipGetErrorName.restype = ctypes.c_char_p
        self.archs = tuple(archs)
        self.modules: dict[tuple[str, bytes], ctypes.c_void_p] = {}

    def check(self, error: int) -> None:
        if error == 0:
            return
        report = self.library.emulatorLastFault().decode()
        name = self.library.hipGetErrorName(error).decode()
        if report:
            self.library.emulatorClearFault()
            raise GpuFault(report)
        raise GpuError(name)

    def kernel(self, arch: str, code_object: bytes, name: str) -> "GpuKernel":
        self.check(self.library.hipSetDevice(self.archs.index(arch)))
        key = arch, code_object
        if key not in self.modules:
            self.translate(code_object)
            module = ctypes.c_void_p()
            self.check(self.library.hipModuleLoadData(ctypes.byref(module), code_object))
            self.modules[key] = module
        function = ctypes.c_void_p()
        self.check(self.library.hipModuleGetFunction(ctypes.byref(function), self.modules[key], name.encode()))
        return GpuKernel(self, function)

    def translate(self, code_object: bytes) -> None:
        """What the library would start a Python of its own for, when it loads the code object."""
        path = ctypes.create_string_buffer(1024)
        self.check(self.library.emulatorTranslatedPath(code_object, path, len(path)))
        if not Path(path.value.decode()).exists():
            Path(path.value.decode()).write_bytes(translate(code_object))


class GpuKernel:
    """A kernel of a loaded module."""

    def __init__(self, gpu: Gpu, function: ctypes.c_void_p) -> None:
        self.gpu = gpu
        self.function = function

    def __call__(
        self,
        *arguments: NDArray[np.generic] | ctypes.c_int | ctypes.c_float | ctypes.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        lds_bytes: int = 0,
    ) -> int:
        """Launch, wait, and return how many instructions the waves ran. Arrays are copied to the device, and back
        into themselves when the kernel is done; each has an allocation of exactly its size.
        """
        library, check = self.gpu.library, self.gpu.check
        values: list[ctypes.c_void_p | ctypes.c_int | ctypes.c_float] = []
        buffers: list[tuple[NDArray[np.generic], ctypes.c_void_p]] = []
        for argument in arguments:
            if isinstance(argument, np.ndarray):
                pointer = ctypes.c_void_p()
                check(library.hipMalloc(ctypes.byref(pointer), ctypes.c_size_t(argument.nbytes)))
                buffers.append((argument, pointer))
                check(self._copy(pointer, argument.ctypes.data, argument.nbytes, HOST_TO_DEVICE))
                values.append(pointer)
            else:
                values.append(argument)
        packed = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        shape = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
        try:
            check(library.hipModuleLaunchKernel(self.function, *shape, lds_bytes, None, packed, None))
            check(library.hipDeviceSynchronize())
            for array, pointer in buffers:
                check(self._copy(array.ctypes.data, pointer, array.nbytes, DEVICE_TO_HOST))
        finally:
            for _, pointer in buffers:
                library.hipFree(pointer)
        return int(library.emulatorInstructionsRun())

    def _copy(self, to: ctypes.c_void_p | int, source: ctypes.c_void_p | int, nbytes: int, kind: int) -> int:
        pointers = [each if isinstance(each, ctypes.c_void_p) else ctypes.c_void_p(each) for each in (to, source)]
        return int(self.gpu.library.hipMemcpy(*pointers, ctypes.c_size_t(nbytes), kind))
