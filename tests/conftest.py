"""Fixtures that every part of the tests may use."""

import os
from pathlib import Path

import pytest

MODELS_VARIABLE = "HIPFIRE_TEST_MODELS"


def downloaded_model(tag: str, file_name: str) -> Path:
    """The path of a real model's file, as `hipfire pull` leaves it; skips the test where it was not downloaded.

    A CI run (CI=true) may not skip: there a missing model fails the test.
    """
    folder = os.environ.get(MODELS_VARIABLE)
    path = Path(folder, file_name) if folder else None
    if path is not None and path.is_file():
        return path
    reason = f"{tag} is not here: set {MODELS_VARIABLE}=DIR, then HIPFIRE_MODELS_DIR=DIR hipfire pull {tag}"
    if os.environ.get("CI") == "true":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2 135M Instruct, Q4_1."""
    return downloaded_model("smollm2:135m", "SmolLM2-135M-Instruct.Q4_1.gguf")


@pytest.fixture(scope="session")
def gemma3_path() -> Path:
    """Gemma 3 270M, Q4_K_M."""
    return downloaded_model("gemma3:270m", "gemma-3-270m-q4_k_m.gguf")
