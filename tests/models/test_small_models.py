"""Small models of every shape that this build takes, against the logits of Hugging Face's transformers."""

import json
from pathlib import Path

import numpy as np
import pytest
from devices.runner import Runner
from safetensors.numpy import load_file

from hipfire.devices.reference import ReferenceDevice

FIXTURES = Path(__file__).parents[2] / "fixtures"
GREEDY = ("tiny-llama", "tiny-llama/model.gguf", "tiny-gemma3")
VARIANTS = tuple(f"variants/{folder.name}" for folder in sorted((FIXTURES / "variants").iterdir()))


def folder_of(name: str) -> Path:
    path = FIXTURES / name
    return path if path.is_dir() else path.parent


@pytest.mark.parametrize("name", GREEDY + VARIANTS)
def test_logits_of_every_position(name: str) -> None:
    reference = load_file(folder_of(name) / "ref_logits.safetensors")
    with Runner(FIXTURES / name, ReferenceDevice.open()) as runner:
        logits = runner.logits(reference["input_ids"])
    assert np.abs(logits - reference["logits"]).max() <= 1e-4


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_tokens(name: str) -> None:
    reference = json.loads((folder_of(name) / "ref.json").read_text())
    with Runner(FIXTURES / name, ReferenceDevice.open()) as runner:
        assert runner.greedy([reference["input_ids"]], len(reference["generated"])) == [reference["generated"]]
