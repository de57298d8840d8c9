from pathlib import Path

import pytest
from scripted_service import models_in
from trio.testing import MockClock

from hipfire.catalog.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Two models, `tiny`, which is the default one, and `other`."""
    folder = tmp_path / "models"
    folder.mkdir()
    return models_in(folder, "tiny", "other")


@pytest.fixture
def patient_clock() -> MockClock:
    """Jumps to the next deadline, but not while a worker thread is at work."""
    return MockClock(autojump_threshold=0.1)
