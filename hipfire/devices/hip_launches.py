"""Launch lists, made once for each shape of a step and kept: a step that repeats costs one call of native code."""

import ctypes
from collections import OrderedDict
from collections.abc import Mapping

import attrs

from hipfire.devices.hip_lowering import Addresses, LaunchSpec, StepShape, lower
from hipfire.hip.runtime import Runtime
from hipfire.kernels.hip_table import KERNELS, fill
from hipfire.kernels.library import Launch, Library
from hipfire.program.program import Program

MAX_LISTS = 16


@attrs.frozen(eq=False)
class _LaunchList:
    array: ctypes.Array[Launch]
    arguments: list[ctypes.Structure]
    """What the array points at, kept alive."""


class LaunchLists:
    """The lists of one loaded Program. `modules`: handles of the code objects, by source."""

    def __init__(
        self, program: Program, at: Addresses, runtime: Runtime, modules: Mapping[str, int], native: Library
    ) -> None:
        self._program = program
        self._at = at
        self._runtime = runtime
        self._modules = modules
        self._native = native
        self._functions: dict[str, int] = {}
        self._lists: OrderedDict[StepShape, _LaunchList] = OrderedDict()

    def enqueue(self, shape: StepShape) -> None:
        """Enqueue the kernels of a step. Raises HipError."""
        launches = self._lists.pop(shape, None) or self._make(lower(self._program, self._at, shape))
        self._lists[shape] = launches
        if len(self._lists) > MAX_LISTS:
            self._lists.popitem(last=False)
        array = launches.array
        status = self._native.launch(self._runtime.launch_address, array, len(array), self._runtime.stream)
        if status:
            raise self._runtime.error(status)

    def _make(self, specs: list[LaunchSpec]) -> _LaunchList:
        array = (Launch * len(specs))()
        arguments = []
        for entry, spec in zip(array, specs, strict=True):
            kernel = KERNELS[spec.kernel]
            arguments.append(fill(kernel, spec.arguments))
            entry.function = self._function(spec.kernel)
            entry.arguments = ctypes.addressof(arguments[-1])
            entry.arguments_nbytes = ctypes.sizeof(arguments[-1])
            entry.grid[:] = spec.grid
            entry.n_threads = kernel.n_threads
        return _LaunchList(array, arguments)

    def _function(self, name: str) -> int:
        if name not in self._functions:
            self._functions[name] = self._runtime.function(self._modules[KERNELS[name].source], name)
        return self._functions[name]
