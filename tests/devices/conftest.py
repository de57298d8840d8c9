"""The HIP device whose kernels are compiled for this CPU, once, with waves of 32 and of 64."""

import fcntl
from pathlib import Path

import pytest
from hip_host import compile_kernels, link_library

from hipfire.devices.hip import HipDevice
from hipfire.hip.device_list import list_devices
from hipfire.hip.library import HipLibrary
from hipfire.kernels.select import load_variant, machine_variants

WAVES = {"gfx1030": 32, "gfx906": 64}


@pytest.fixture(scope="session")
def hip_kernels(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> list[Path]:
    own = tmp_path_factory.getbasetemp()
    # Of the processes that share the tests, one compiles.
    folder = (own if worker_id == "master" else own.parent) / "hip_kernels"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = folder / "done"
        if not done.exists():
            done.write_text("\n".join(map(str, compile_kernels(folder))))
        return [Path(line) for line in done.read_text().splitlines()]


@pytest.fixture(scope="session", params=WAVES)
def hip_device(
    hip_kernels: list[Path], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> HipDevice:
    folder = tmp_path_factory.mktemp("hip") / "library"
    library = HipLibrary(str(link_library(folder, hip_kernels, arch=request.param, wave_size=WAVES[request.param])))
    (gpu,) = list_devices(library)
    return HipDevice(library, gpu, load_variant(machine_variants()[0]), 1)
