"""The GPU kernels' sources, compiled for this CPU once."""

from pathlib import Path

import pytest
from hip_host import compile_kernels


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Object files for `hip_host.link_library`."""
    return compile_kernels(tmp_path_factory.mktemp("hip"))
