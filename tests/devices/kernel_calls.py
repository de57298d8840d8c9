"""One GPU kernel at a time, with NumPy arrays for its arguments: on the host's build or in the emulator."""

import ctypes
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Self

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.hip import HipDevice
from hipfire.hip.runtime import Runtime
from hipfire.kernels.hip_table import KERNELS, fill
from hipfire.kernels.library import Launch

Argument = NDArray[np.generic] | int | float | None


class KernelCalls:
    """The kernels of a device. Used as a context."""

    def __init__(self, device: HipDevice) -> None:
        self._device = device
        self._cleanup = ExitStack()
        self._modules: dict[str, int] = {}

    def __enter__(self) -> Self:
        self._runtime = Runtime(self._device.library, self._device.gpu.index)
        self._cleanup.callback(self._runtime.close)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def __call__(self, name: str, grid: Sequence[int], /, **arguments: Argument) -> None:
        """Run a kernel. Every array is copied to memory of exactly its size, and back into itself afterwards."""
        kernel, runtime = KERNELS[name], self._runtime
        arrays = {key: value for key, value in arguments.items() if isinstance(value, np.ndarray)}
        addresses = {key: runtime.allocate(array.nbytes, key) for key, array in arrays.items()}
        for key, array in arrays.items():
            runtime.upload(addresses[key], array.ctypes.data, array.nbytes)
        filled = fill(kernel, arguments | addresses)
        launch = (Launch * 1)()
        if kernel.source not in self._modules:
            self._modules[kernel.source] = runtime.load_module(self._device.objects[kernel.source])
        launch[0].function = runtime.function(self._modules[kernel.source], name)
        launch[0].arguments = ctypes.addressof(filled)
        launch[0].arguments_nbytes = ctypes.sizeof(filled)
        launch[0].grid[:] = [*grid, 1, 1][:3]
        launch[0].n_threads = kernel.n_threads
        assert self._device.packing.launch(runtime.launch_address, launch, 1, runtime.stream) == 0
        for key, array in arrays.items():
            runtime.download(array.ctypes.data, addresses[key], array.nbytes)
