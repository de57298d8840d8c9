"""The emulated GPU of the tests, and their kernels, compiled once."""

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.build import build_library
from emulator.compile import compile_hip
from emulator.gpu import Gpu, GpuKernel

HERE = Path(__file__).parent
ROOM = HERE.parents[1] / "build" / "emulator"
ARCHS = ("gfx1100", "gfx1201", "gfx942")

KernelNamed = Callable[..., GpuKernel]


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


@pytest.fixture
def kernel(gpu: Gpu, arch: str, code_object: Callable[..., bytes]) -> KernelNamed:
    """A kernel of a file of `kernels/`, for the architecture at hand."""

    def find(file: str, name: str, *options: str) -> GpuKernel:
        return gpu.kernel(arch, code_object(file, arch, *options), name)

    return find
