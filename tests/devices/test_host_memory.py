"""How much memory is left, from files as Linux writes them."""

from pathlib import Path

import pytest

from hipfire.devices.host_memory import available_nbytes, require_memory
from hipfire.errors import OutOfMemory

MEMINFO = "MemTotal:       24000000 kB\nMemFree:         1000000 kB\nMemAvailable:    2000000 kB\n"


@pytest.fixture
def meminfo(tmp_path: Path) -> Path:
    path = tmp_path / "meminfo"
    path.write_text(MEMINFO)
    return path


def make_cgroup(folder: Path, limit: str) -> Path:
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text("700\n")
    (folder / "memory.stat").write_text("anon 500\nfile 200\ninactive_file 150\n")
    return folder


def test_the_host_says_what_is_available(meminfo: Path, tmp_path: Path) -> None:
    assert available_nbytes(meminfo, tmp_path) == 2_048_000_000


def test_a_container_without_a_limit_has_the_hosts(meminfo: Path, tmp_path: Path) -> None:
    assert available_nbytes(meminfo, make_cgroup(tmp_path, "max")) == 2_048_000_000


def test_a_containers_limit_counts_less_what_is_used_and_not_reclaimable(meminfo: Path, tmp_path: Path) -> None:
    assert available_nbytes(meminfo, make_cgroup(tmp_path, "1000")) == 450


def test_a_full_container_has_nothing(meminfo: Path, tmp_path: Path) -> None:
    assert available_nbytes(meminfo, make_cgroup(tmp_path, "300")) == 0


def test_elsewhere_nobody_knows(tmp_path: Path) -> None:
    assert available_nbytes(tmp_path / "none", tmp_path) is None


def test_too_little_is_an_error_with_both_numbers() -> None:
    require_memory("the model", 10, None)
    require_memory("the model", 10, 10)
    with pytest.raises(OutOfMemory, match="the model needs 3 MiB of memory and 1 MiB are free"):
        require_memory("the model", (2 << 20) + 1, (2 << 20) - 1)
