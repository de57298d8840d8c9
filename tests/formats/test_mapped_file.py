"""What a mapping takes of memory, by the system's own account."""

import os
import sys
from pathlib import Path

import pytest

from hipfire.formats.mapped_file import MappedFile

N_PAGES = 64


def resident_nbytes(path: Path) -> int:
    """Bytes of a mapped file that this process holds; source: proc_pid_smaps(5)."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    assert any(line.endswith(str(path)) for line in lines)
    rss = next(line for line in lines if line.startswith("Rss:"))
    return int(rss.split()[1]) * 1024


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is resident")
def test_dropped_pages_take_no_memory_and_read_the_same_again(tmp_path: Path):
    path = tmp_path / "file"
    content = os.urandom(N_PAGES * os.sysconf("SC_PAGE_SIZE"))
    path.write_bytes(content)
    file = MappedFile(path)
    view = file.bytes_at(0, len(content))
    assert view.tobytes() == content
    assert resident_nbytes(path) == len(content)
    file.drop_pages()
    assert resident_nbytes(path) == 0
    assert view.tobytes() == content
