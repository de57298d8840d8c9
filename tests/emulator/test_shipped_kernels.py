"""The machine code that is shipped, every op and every format, against the reference device; and that faults show.

The emulator also watches every access, wait and barrier on the way: see docs/emulator.md.
"""

import shutil
from pathlib import Path

import pytest
from devices.differential import OpDifference, assert_same, compare, joined, make_step, tolerance_of
from devices.given_logits import assert_finds_the_best, assert_sees_what_is_not_finite, table_of
from devices.random_model import RandomModel

from emulator.conftest import OpenDevice
from emulator.gpu import Gpu
from hipfire.devices.base import Step
from hipfire.devices.hip import HipDevice
from hipfire.devices.reference import ReferenceDevice
from hipfire.dtypes import DTYPES
from hipfire.errors import DeviceLost
from hipfire.kernels import build_hip

pytestmark = pytest.mark.slow  # code objects are translated

TOKENS = [(7 * i * i + 3 * i + 11) % 131 for i in range(200)]

SHAPES = [
    RandomModel(n_heads=6, n_kv_heads=1, head_dim=24, n_embd=40, n_ff=52, tied=False, biases=True, n_layers=1),
    RandomModel(n_heads=3, n_kv_heads=3, head_dim=64, n_rot=32, interleaved=False, n_vocab=257, n_layers=1),
    RandomModel(architecture="gemma3", n_layers=1, n_kv_heads=1, head_dim=256, window=9, interleaved=False),
]


def differences(device: HipDevice, model: RandomModel, steps: list[Step], kv_cache: str = "f32") -> list[OpDifference]:
    program, tensors = model.build()
    return compare(
        program,
        tensors,
        steps,
        actual=device,
        expected=ReferenceDevice.open(None),
        # Keys and values of 11 bits where they are float16.
        tolerance=tolerance_of(model.dtype) if kv_cache == "f32" else lambda op: 5e-3,
        kv_cache=kv_cache,
    )


def prompt_in_two_slots() -> list[Step]:
    first = make_step(TOKENS[:10]), make_step(TOKENS[10:14], start=10, outputs=[3])
    return [*first, joined(make_step(TOKENS[14:15], start=14), make_step(TOKENS[10:17], slot=1))]


@pytest.mark.parametrize("model", SHAPES, ids=range(len(SHAPES)))
def test_every_op_is_the_references(open_hip: OpenDevice, arch: str, model: RandomModel) -> None:
    assert_same(differences(open_hip(arch), model, prompt_in_two_slots()))


def test_a_half_precision_state_costs_its_rounding(open_hip: OpenDevice, arch: str) -> None:
    assert_same(differences(open_hip(arch), RandomModel(n_layers=1), prompt_in_two_slots(), "f16"))


def test_a_context_of_several_chunks_is_the_references(open_hip: OpenDevice, arch: str) -> None:
    steps = [make_step(TOKENS[:130], outputs=[129]), make_step(TOKENS[130:131], start=130)]
    assert_same(differences(open_hip(arch), RandomModel(n_layers=1, n_heads=2, n_kv_heads=1), steps))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_format_is_the_references(open_hip: OpenDevice, arch: str, dtype: str) -> None:
    model = RandomModel(dtype=dtype, n_embd=256, n_ff=256, n_heads=2, n_kv_heads=1, n_layers=1, n_vocab=41)
    steps = [make_step([3, 40, 30, 7, 39]), make_step([8], start=5)]
    assert_same(differences(open_hip(arch), model, steps))


def test_the_best_logits_are_found_on_the_device(open_hip: OpenDevice, arch: str) -> None:
    assert_finds_the_best(open_hip(arch), table_of(4101))


def test_a_logit_that_is_not_finite_is_seen_on_the_device(open_hip: OpenDevice, arch: str) -> None:
    assert_sees_what_is_not_finite(open_hip(arch), 300)


# What is changed in which source, and in which model it shows.
FAULTS = {
    "the last elements are dropped": ("rows.hip", "i < n; i += 4 * THREADS", "i < n - 4; i += 4 * THREADS"),
    "a row too far": (
        "rows.hip",
        "x[(int64_t)output_rows[block_y()] * n",
        "x[(int64_t)(output_rows[block_y()] + 1) * n",
    ),
    "a missing barrier": ("hip.h", "    meet();\n    float result", "    float result"),
    "the scale of another part": ("embed.hip", "m *= (float)tile[8 + row];", "m *= (float)tile[row];"),
    "a mask off by one": ("attention.hip", "position < seen.to;", "position < seen.to - 1;"),
    "a part of the values is left out": (
        "attention.hip",
        "part = 1; part < mine.n_parts",
        "part = 2; part < mine.n_parts",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_kernel_shows(
    gpu: Gpu, open_hip: OpenDevice, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, right, wrong = FAULTS[fault]
    sources = tmp_path / "hip"
    shutil.copytree(build_hip.HIP, sources)
    shutil.copy(build_hip.HERE / "layout.h", tmp_path)
    text = (sources / file).read_text()
    assert right in text
    (sources / file).write_text(text.replace(right, wrong))
    monkeypatch.setattr(build_hip, "HIP", sources)
    device = open_hip("gfx1100")
    source = "rows" if file == "hip.h" else file.removesuffix(".hip")
    build_hip.compile_object(source, "gfx1100", tmp_path / "faulty.hsaco")
    device.objects[source] = (tmp_path / "faulty.hsaco").read_bytes()
    model = RandomModel(dtype="q4_k", n_embd=256, n_ff=256, n_heads=2, n_kv_heads=1, n_layers=1, n_vocab=41)
    try:
        found = differences(device, model, [make_step([3, 40, 30, 7, 39], outputs=[1, 4])])
    except DeviceLost:
        # The emulator itself saw an access or a race that may not be.
        # What the lost stream still holds fails in the same way, until nothing is left of it.
        while gpu.library.hipDeviceSynchronize():
            gpu.library.emulatorClearFault()
    else:
        assert not all(difference.passes for difference in found)
