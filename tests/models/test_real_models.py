"""Real model files on the reference device, against transformers with the same weights in float32."""

from pathlib import Path

import numpy as np
import pytest
from devices.runner import Runner, log_softmax

from hipfire.devices.reference import ReferenceDevice

REAL = Path(__file__).parents[2] / "fixtures" / "real"
TOLERANCE = 2e-3
"""Of the log probability of each of the likeliest 8 tokens of every position."""

pytestmark = pytest.mark.slow


def check_texts(runner: Runner, reference: np.lib.npyio.NpzFile) -> None:
    for i in range(3):
        top_ids, expected = reference[f"top_ids{i}"][:, :8], reference[f"top_logprobs{i}"][:, :8]
        found = np.take_along_axis(log_softmax(runner.logits(reference[f"ids{i}"])), top_ids, axis=1)
        assert np.abs(found - expected).max() <= TOLERANCE


def test_smollm2(smollm2_path: Path) -> None:
    with (
        np.load(REAL / "smollm2-135m-instruct-q4_1.npz") as reference,
        Runner(smollm2_path, ReferenceDevice.open(), n_slots=3) as runner,
    ):
        check_texts(runner, reference)
        answers = runner.greedy([reference[f"chat_prompt{i}"] for i in range(3)], 12)
        for i, answer in enumerate(answers):
            expected = reference[f"chat_greedy{i}"].tolist()
            # What comes after a model's end of text is nobody's promise.
            assert answer[: len(expected)] == expected[: len(answer)]


def test_gemma3(gemma3_path: Path) -> None:
    with np.load(REAL / "gemma-3-270m-q4_k_m.npz") as reference, Runner(gemma3_path, ReferenceDevice.open()) as runner:
        check_texts(runner, reference)
