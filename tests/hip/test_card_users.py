import os
from pathlib import Path

import pytest

from hipfire.hip.card_users import other_users

GB = 10**9


@pytest.fixture
def kfd(tmp_path: Path) -> Path:
    """Two GPUs and a processor; processes: much of the first, little of it, much of the second, and ours."""
    for node, (number, location, domain) in enumerate([(0, 0, 0), (31415, 0x300, 0), (27182, 0x4308, 1)]):
        folder = tmp_path / "topology" / "nodes" / str(node)
        folder.mkdir(parents=True)
        (folder / "gpu_id").write_text(f"{number}\n")
        (folder / "properties").write_text(f"simd_count 96\nlocation_id {location}\ndomain {domain}\nname a b\n")
    for pid, number, nbytes in [
        (100, 31415, 2 * GB), (101, 31415, 1 << 20), (102, 27182, 3 * GB), (os.getpid(), 31415, GB),
    ]:  # fmt: skip
        folder = tmp_path / "proc" / str(pid)
        folder.mkdir(parents=True)
        (folder / f"vram_{number}").write_text(f"{nbytes}\n")
    return tmp_path


def test_who_has_much_of_a_card(kfd: Path) -> None:
    assert other_users("0000:03:00.0", kfd) == {100: 2 * GB}
    assert other_users("0001:43:01.0", kfd) == {102: 3 * GB}


@pytest.mark.parametrize("pci", ["0000:43:01.0", "0000:03:00.1", "nonsense"])
def test_nobody_is_known_of_a_card_that_is_not_there(kfd: Path, pci: str) -> None:
    assert other_users(pci, kfd) == {}


def test_nobody_is_known_without_the_driver(tmp_path: Path) -> None:
    assert other_users("0000:03:00.0", tmp_path / "none") == {}


def test_a_process_that_ends_meanwhile_has_nothing(kfd: Path) -> None:
    (kfd / "proc/100/vram_31415").write_text("")
    assert other_users("0000:03:00.0", kfd) == {}
