"""A real model's whole forward pass by the machine code of GPU kernels, through the command line."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from devices.runner import Runner, log_softmax

from emulator.conftest import ARCHS, ROOM, OpenDevice

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "fixtures" / "real" / "smollm2-135m-instruct-q4_1.npz"


@pytest.mark.slow
@pytest.mark.parametrize("arch", [ARCHS[0], *(pytest.param(arch, marks=pytest.mark.nightly) for arch in ARCHS[1:])])
def test_the_capital_of_france(emulated_library: Path, smollm2_path: Path, tmp_path: Path, arch: str) -> None:
    libraries = tmp_path / "lib"
    libraries.mkdir()
    (libraries / "libamdhip64.so").symlink_to(emulated_library)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HIPFIRE_HOME": str(tmp_path / "home"),
        "LD_LIBRARY_PATH": str(libraries),
        "HIP_EMULATOR_ARCH": arch,
        "HIP_EMULATOR_CACHE": str(ROOM / "translated"),
    }
    command = [
        sys.executable,
        "-m",
        "hipfire",
        "run",
        str(smollm2_path),
        "--device",
        "hip:0",
        "--max-seq",
        "512",
        "-t",
        "0",
    ]
    done = subprocess.run(
        [*command, "What is the capital of France?"], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "The capital of France is Paris.\n"), done.stderr


@pytest.mark.nightly
def test_the_likelihood_of_texts_is_the_references(open_hip: OpenDevice, smollm2_path: Path, arch: str) -> None:
    with np.load(REFERENCE) as reference, Runner(smollm2_path, open_hip(arch)) as runner:
        for i in range(3):
            ids, expected = reference[f"ids{i}"], float(reference[f"nll{i}"])
            logprobs = log_softmax(runner.logits(ids))
            nll = -logprobs[np.arange(len(ids) - 1), ids[1:]].mean()
            sys.stdout.write(f"{arch}, text {i} of {len(ids)} tokens: {nll:.5f}, the reference says {expected:.5f}\n")
            assert abs(nll / expected - 1) < 0.01
