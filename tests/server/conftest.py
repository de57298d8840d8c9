from pathlib import Path

import pytest
from scripted_service import models_in

from hipfire.catalog.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two models, `tiny`, which is the default one, and `other`."""
    return models_in(tmp_path, "tiny", "other")
