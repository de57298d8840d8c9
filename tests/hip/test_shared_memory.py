"""What an integrated GPU may take of the host's memory, from files as amdgpu writes them."""

from pathlib import Path

import pytest

from hipfire.hip.shared_memory import shared_free_nbytes

GB = 10**9
PCI = "0000:c5:00.0"


@pytest.fixture
def devices(tmp_path: Path) -> Path:
    """Half a gigabyte set aside, 96 to be had, 6 of which are in use."""
    write(tmp_path, vram_total=GB // 2, gtt_total=96 * GB, gtt_used=6 * GB)
    return tmp_path


def write(devices: Path, **numbers: int) -> None:
    (devices / PCI).mkdir(exist_ok=True)
    for name, number in numbers.items():
        (devices / PCI / f"mem_info_{name}").write_text(f"{number}\n")


@pytest.mark.parametrize(("host", "free"), [(None, 90), (120 * GB, 90), (40 * GB, 40)])
def test_it_is_what_the_driver_and_the_host_have_left(devices: Path, host: int | None, free: int) -> None:
    assert shared_free_nbytes(PCI, host, devices=devices, kernel="6.17.0-14-generic") == free * GB


def test_a_gpu_with_more_set_aside_takes_nothing_else(devices: Path) -> None:
    write(devices, vram_total=96 * GB)
    assert shared_free_nbytes(PCI, None, devices=devices, kernel="6.17.0") is None


@pytest.mark.parametrize(
    ("kernel", "takes"), [("5.15.0-91-generic", False), ("6.9.3", False), ("6.10.0-rc1", True), ("7.0.0-28", True)]
)
def test_older_kernels_take_only_what_is_set_aside(devices: Path, kernel: str, takes: bool) -> None:
    assert (shared_free_nbytes(PCI, None, devices=devices, kernel=kernel) is not None) == takes


def test_without_the_driver_s_word_it_is_not_known(devices: Path) -> None:
    assert shared_free_nbytes("0000:03:00.0", None, devices=devices, kernel="6.17.0") is None
    (devices / PCI / "mem_info_gtt_used").write_text("nonsense")
    assert shared_free_nbytes(PCI, None, devices=devices, kernel="6.17.0") is None
