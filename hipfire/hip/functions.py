"""Every function of libamdhip64 that is used: its arguments, once. Source: HIP's hip_runtime_api.h.

All of them return a `hipError_t`, but for the two that name one.
"""

import ctypes
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

import attrs

POINTER_OUT = POINTER(c_void_p)


@attrs.frozen
class Declaration:
    """`optional`: not in every version of the library that we support."""

    arguments: tuple[Any, ...]
    result: Any = c_int
    optional: bool = False


FUNCTIONS: dict[str, Declaration] = {
    "hipGetErrorName": Declaration((c_int,), result=c_char_p),
    "hipGetErrorString": Declaration((c_int,), result=c_char_p),
    "hipInit": Declaration((c_uint,)),
    "hipRuntimeGetVersion": Declaration((POINTER(c_int),)),
    "hipGetDeviceCount": Declaration((POINTER(c_int),)),
    "hipSetDevice": Declaration((c_int,)),
    # From ROCm 6 on the plain name keeps the old layout of the struct, and the new one has this name.
    "hipGetDevicePropertiesR0600": Declaration((c_void_p, c_int), optional=True),
    "hipGetDeviceProperties": Declaration((c_void_p, c_int)),
    "hipDeviceGetPCIBusId": Declaration((c_char_p, c_int, c_int)),
    "hipDeviceGetUuid": Declaration((c_void_p, c_int), optional=True),
    "hipMemGetInfo": Declaration((POINTER(c_size_t), POINTER(c_size_t))),
    "hipMalloc": Declaration((POINTER_OUT, c_size_t)),
    "hipFree": Declaration((c_void_p,)),
    "hipHostMalloc": Declaration((POINTER_OUT, c_size_t, c_uint)),
    "hipHostFree": Declaration((c_void_p,)),
    "hipHostGetDevicePointer": Declaration((POINTER_OUT, c_void_p, c_uint)),
    "hipMemcpy": Declaration((c_void_p, c_void_p, c_size_t, c_int)),
    "hipMemcpyAsync": Declaration((c_void_p, c_void_p, c_size_t, c_int, c_void_p)),
    "hipMemsetAsync": Declaration((c_void_p, c_int, c_size_t, c_void_p)),
    "hipStreamCreateWithFlags": Declaration((POINTER_OUT, c_uint)),
    "hipStreamDestroy": Declaration((c_void_p,)),
    "hipStreamSynchronize": Declaration((c_void_p,)),
    "hipModuleLoadData": Declaration((POINTER_OUT, c_char_p)),
    "hipModuleUnload": Declaration((c_void_p,)),
    "hipModuleGetFunction": Declaration((POINTER_OUT, c_void_p, c_char_p)),
    "hipModuleLaunchKernel": Declaration(
        (c_void_p, *(c_uint,) * 6, c_uint, c_void_p, POINTER_OUT, POINTER_OUT),
    ),
    "hipStreamBeginCapture": Declaration((c_void_p, c_int), optional=True),
    "hipStreamEndCapture": Declaration((c_void_p, POINTER_OUT), optional=True),
    # Not hipGraphInstantiate, whose arguments CUDA changed: these are the same in every version.
    "hipGraphInstantiateWithFlags": Declaration((POINTER_OUT, c_void_p, c_ulonglong), optional=True),
    "hipGraphLaunch": Declaration((c_void_p, c_void_p), optional=True),
    "hipGraphDestroy": Declaration((c_void_p,), optional=True),
    "hipGraphExecDestroy": Declaration((c_void_p,), optional=True),
}

GRAPH_FUNCTIONS = tuple(name for name in FUNCTIONS if "Graph" in name or "Capture" in name)

STREAM_NON_BLOCKING = 1
HOST_MAPPED, HOST_COHERENT = 0x2, 0x4000_0000
"""Of `hipHostMalloc`: kernels may use the memory, and what the host writes there no cache of the GPU hides."""
CAPTURE_THREAD_LOCAL = 1
"""Of `hipStreamCaptureMode`: what other threads call does not matter."""
HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE = 1, 2, 3
"""Of `hipMemcpyKind`."""

OUT_OF_MEMORY = 2
NO_DEVICE = 100
"""Of `hipError_t`."""

# `hipModuleLaunchKernel` takes all arguments as one piece of memory by a list of tagged pointers.
LAUNCH_BUFFER_POINTER, LAUNCH_BUFFER_SIZE, LAUNCH_END = 1, 2, 3


@attrs.frozen(kw_only=True)
class PropertyLayout:
    """Byte offsets in `hipDeviceProp_t` of what we read of it."""

    total_memory: int
    n_compute_units: int
    integrated: int
    arch: int


LAYOUT_R0600 = PropertyLayout(total_memory=288, n_compute_units=388, integrated=396, arch=1160)
LAYOUT_R0000 = PropertyLayout(total_memory=256, n_compute_units=336, integrated=652, arch=396)
"""Of ROCm before 6."""
PROPERTIES_NBYTES = 4096
"""More than either layout has."""


def declare(library: ctypes.CDLL) -> dict[str, Any]:
    """The functions that the library has, with types. AttributeError for one that it must have and has not."""
    functions: dict[str, Any] = {}
    for name, declaration in FUNCTIONS.items():
        if declaration.optional and not hasattr(library, name):
            continue
        function = getattr(library, name)
        function.argtypes = declaration.arguments
        function.restype = declaration.result
        functions[name] = function
    return functions
