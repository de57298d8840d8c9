"""The emulated GPU of the tests, and their kernels, compiled once."""

import ctypes
from collections.abc import Callable, Iterator
from ctypes import byref, c_void_p
from pathlib import Path

import pytest

from emulator.build import build_library
from emulator.compile import compile_hip
from emulator.gpu import Gpu, GpuKernel
from hipfire.devices.hip import HipDevice
from hipfire.hip.device_list import list_devices
from hipfire.hip.library import HipLibrary
from hipfire.kernels.select import load_variant, machine_variants

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / "build" / "emulator"
ARCHS = ("gfx1100", "gfx1201", "gfx942", "gfx90a", "gfx906", "gfx1030")
"""One for each set of decoding tables."""

MATRIX_ARCHS = ARCHS[:4]
"""Those with matrix instructions."""

KernelNamed = Callable[..., GpuKernel]
OpenDevice = Callable[[str], HipDevice]


@pytest.fixture(scope="session")
def emulated_library() -> Path:
    """The path of the emulated libamdhip64."""
    return build_library(ROOM)


@pytest.fixture(scope="session")
def gpu(emulated_library: Path) -> Gpu:
    """An emulated GPU of each family, in this process."""
    return Gpu(emulated_library, ARCHS, ROOM / "translated")


@pytest.fixture(scope="session")
def code_object() -> Callable[..., bytes]:
    """Compiles a file of `kernels/` for an architecture with compiler options, each once."""
    compiled: dict[tuple[str, ...], bytes] = {}

    def find(file: str, arch: str, *options: str) -> bytes:
        key = (file, arch, *options)
        if key not in compiled:
            compiled[key] = compile_hip(HERE / "kernels" / file, arch, options)
        return compiled[key]

    return find


@pytest.fixture(params=ARCHS)
def arch(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def lanes_of(arch: str) -> int:
    return 64 if arch.startswith("gfx9") else 32


@pytest.fixture
def kernel(gpu: Gpu, arch: str, code_object: Callable[..., bytes]) -> KernelNamed:
    """A kernel of a file of `kernels/`, for the architecture at hand."""

    def find(file: str, name: str, *options: str) -> GpuKernel:
        return gpu.kernel(arch, code_object(file, arch, *options), name)

    return find


@pytest.fixture(scope="session")
def open_hip(gpu: Gpu, emulated_library: Path) -> OpenDevice:
    """The HIP device on the emulated GPU of an architecture."""
    library = HipLibrary(str(emulated_library))
    gpus = {info.arch: info for info in list_devices(library)}
    packing = load_variant(machine_variants()[0])

    def find(arch: str) -> HipDevice:
        device = HipDevice(library, gpus[arch], packing, 1)
        for code_object in device.objects.values():
            gpu.translate(code_object)
        return device

    return find


@pytest.fixture
def hip(gpu: Gpu) -> Iterator[ctypes.CDLL]:
    """The library, on its first device, without the faults of others."""
    gpu.library.hipSetDevice(0)
    yield gpu.library
    gpu.library.emulatorClearFault()


@pytest.fixture
def add(hip: ctypes.CDLL, code_object: Callable[..., bytes]) -> Iterator[c_void_p]:
    """The handle of a kernel that adds floats."""
    module, function = c_void_p(), c_void_p()
    assert hip.hipModuleLoadData(byref(module), code_object("elementwise.hip", ARCHS[0])) == 0
    assert hip.hipModuleGetFunction(byref(function), module, b"add") == 0
    yield function
    assert hip.hipModuleUnload(module) == 0
