from collections.abc import Iterator
from pathlib import Path

import pytest
from real_program import program_in, read_until


@pytest.fixture(scope="module")
def smollm2_server(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A `hipfire serve` of SmolLM2, the only one for all clients."""
    with program_in(tmp_path_factory.mktemp("home")) as program:
        port = program.variables["HIPFIRE_PORT"]
        process = program.start("serve", "smollm2:135m", port, HIPFIRE_MODELS_DIR=str(smollm2_path.parent))
        read_until(process, "stop it")
        yield f"http://127.0.0.1:{port}"
