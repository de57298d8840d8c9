"""The CPU device with real and with small models: as near to the reference as its arithmetic allows."""

from pathlib import Path

import numpy as np
import pytest
from devices.runner import Runner, log_softmax
from safetensors.numpy import load_file

from hipfire.devices.cpu import CpuDevice
from hipfire.kernels.select import machine_variants

FIXTURES = Path(__file__).parents[2] / "fixtures"
SMALL = ("tiny-llama", "tiny-llama/model.gguf", "tiny-gemma3")
VARIANTS = tuple(f"variants/{folder.name}" for folder in sorted((FIXTURES / "variants").iterdir()))


@pytest.fixture(params=machine_variants())
def device(request: pytest.FixtureRequest) -> CpuDevice:
    return CpuDevice.open(2, variant=request.param)


def error(name: str, device: CpuDevice, kv_cache: str) -> float:
    """The largest error of a logit."""
    path = FIXTURES / name
    reference = load_file((path if path.is_dir() else path.parent) / "ref_logits.safetensors")
    with Runner(path, device, kv_cache=kv_cache) as runner:
        return float(np.abs(runner.logits(reference["input_ids"]) - reference["logits"]).max())


@pytest.mark.parametrize("name", SMALL + VARIANTS)
def test_logits_with_a_float32_state(name: str, device: CpuDevice) -> None:
    assert error(name, device, "f32") <= 1e-5


@pytest.mark.parametrize("name", SMALL + VARIANTS)
@pytest.mark.parametrize("kv_cache", ["q16", "f16"])
def test_logits_with_a_state_of_16_bits(name: str, device: CpuDevice, kv_cache: str) -> None:
    assert error(name, device, kv_cache) <= 2e-3


def check_texts(runner: Runner, reference: np.lib.npyio.NpzFile) -> None:
    for i in range(3):
        ids, top_ids = reference[f"ids{i}"], reference[f"top_ids{i}"][:, :8]
        logprobs = log_softmax(runner.logits(ids))
        nll = -logprobs[np.arange(len(ids) - 1), ids[1:]].mean()
        assert abs(nll / reference[f"nll{i}"] - 1) <= 1e-3
        assert (logprobs.argmax(axis=1) == top_ids[:, 0]).mean() >= 0.99
        found = np.take_along_axis(logprobs, top_ids, axis=1)
        assert np.abs(found - reference[f"top_logprobs{i}"][:, :8]).max() <= 0.03


def check_chunks(path: Path, device: CpuDevice, ids: list[int]) -> None:
    """The same bits from every way to cut a prompt, and from one thread."""
    with Runner(path, device, max_seq=len(ids)) as runner:
        whole = runner.logits(ids)
        for size in (1, 7, 64):
            pieces = [runner.logits(ids[at : at + size], start=at) for at in range(0, len(ids), size)]
            np.testing.assert_array_equal(np.concatenate(pieces).view(np.uint32), whole.view(np.uint32))
    with Runner(path, CpuDevice.open(1, variant=device.variant), max_seq=len(ids)) as runner:
        np.testing.assert_array_equal(runner.logits(ids).view(np.uint32), whole.view(np.uint32))


@pytest.mark.slow
def test_smollm2(smollm2_path: Path) -> None:
    device = CpuDevice.open(2)
    with np.load(FIXTURES / "real" / "smollm2-135m-instruct-q4_1.npz") as reference:
        with Runner(smollm2_path, device, n_slots=3) as runner:
            check_texts(runner, reference)
            for i, answer in enumerate(runner.greedy([reference[f"chat_prompt{i}"] for i in range(3)], 12)):
                expected = reference[f"chat_greedy{i}"].tolist()
                # What comes after a model's end of text is nobody's promise.
                assert answer[: len(expected)] == expected[: len(answer)]
        check_chunks(smollm2_path, device, reference["ids1"].tolist())


@pytest.mark.slow
def test_gemma3(gemma3_path: Path) -> None:
    device = CpuDevice.open(2)
    with np.load(FIXTURES / "real" / "gemma-3-270m-q4_k_m.npz") as reference:
        with Runner(gemma3_path, device) as runner:
            check_texts(runner, reference)
        check_chunks(gemma3_path, device, reference["ids1"].tolist())
