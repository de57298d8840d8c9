"""The number of threads that is chosen when nobody says one."""

from pathlib import Path

import pytest

from hipfire.devices.host_processors import n_usable_cores


@pytest.fixture
def topology(tmp_path: Path) -> Path:
    """Four cores of two logical processors each: 0 and 4, 1 and 5, ..."""
    for cpu in range(8):
        folder = tmp_path / f"cpu{cpu}" / "topology"
        folder.mkdir(parents=True)
        (folder / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    return tmp_path


def test_two_logical_processors_are_one_core(topology: Path) -> None:
    absent = topology / "no quota"
    assert n_usable_cores(range(8), topology=topology, quota=absent) == 4
    assert n_usable_cores([0, 4, 5], topology=topology, quota=absent) == 2


@pytest.mark.parametrize(("text", "expected"), [("max 100000\n", 4), ("150000 100000\n", 2), ("1000 100000\n", 1)])
def test_a_quota_bounds_it(topology: Path, text: str, expected: int) -> None:
    quota = topology / "cpu.max"
    quota.write_text(text)
    assert n_usable_cores(range(8), topology=topology, quota=quota) == expected


def test_a_system_that_says_nothing_counts_processors(tmp_path: Path) -> None:
    assert n_usable_cores(range(3), topology=tmp_path, quota=tmp_path / "cpu.max") == 3
    assert n_usable_cores() >= 1
