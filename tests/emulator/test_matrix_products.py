"""The machine code of the linear kernels for many rows, on every family, against NumPy to the bit; that faults show."""

import shutil
from pathlib import Path

import attrs
import numpy as np
import pytest
from devices.differential import make_step
from devices.kernel_calls import KernelCalls
from devices.q16 import LAYOUTS, product, quantised, unpacked
from devices.random_model import RandomModel
from devices.test_hip_q16 import packed_matrix
from numpy.typing import NDArray

from emulator.conftest import OpenDevice
from emulator.gpu import Gpu
from hipfire.devices.base import CancelFlag, Limits
from hipfire.devices.hip import HipDevice
from hipfire.dtypes import DTYPES
from hipfire.hip.library import HipError
from hipfire.kernels import build_hip
from hipfire.kernels.linear_kinds import GROUP, QUANTISED_KINDS, choose_kind

pytestmark = pytest.mark.slow  # code objects are translated

MATRIX = QUANTISED_KINDS["matrix"]
COLUMN, MARGIN = 3, 7
"""Where the outputs begin in a row, and by how much a row is wider than they are."""

# Rows, outputs, tiles: parts of workgroups, more than one, a last pair of tiles that is one, strands of two tiles.
SHAPES = [(5, 12, 1), (17, 20, 17), (33, 9, 3), (70, 137, 4)]


def run(
    device: HipDevice, dtype: str, n_rows: int, n_out: int, n_tiles: int, *, plain: bool = False
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """What the kernel writes, and what it should: every row whole. `plain`: without bias and residual."""
    rng = np.random.default_rng(n_rows)
    tiles_a_block = LAYOUTS[dtype].block // 32
    n_in = -(-n_tiles // tiles_a_block) * LAYOUTS[dtype].block
    packed = packed_matrix(device, dtype, n_out, n_in)
    x_q16 = quantised(rng.standard_normal((n_rows, n_in)).astype(np.float32))
    shape = (n_rows, COLUMN + n_out + MARGIN)
    found, residual = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    bias = rng.standard_normal(n_out).astype(np.float32)
    expected, mine = found.copy(), slice(COLUMN, COLUMN + n_out)
    expected[:, mine] = product(x_q16, unpacked(packed, dtype, n_in))[:, :n_out]
    if not plain:
        expected[:, mine] = expected[:, mine] + bias + residual[:, mine]
    added = dict.fromkeys(("bias", "residual")) if plain else {"bias": bias, "residual": residual}
    sizes = {"n_out": n_out, "n_in": n_in, "width_out": shape[1], "column": COLUMN, "n_rows": n_rows}
    grid = (-(-n_out // (GROUP * MATRIX.n_groups)), -(-n_rows // MATRIX.n_rows))
    with KernelCalls(device) as call:
        call(f"linear_{dtype}_matrix", grid, packed=packed, x_q16=x_q16, out=found, **added, **sizes)
    return found, expected


def assert_bits(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_every_format_and_ragged_shapes(open_hip: OpenDevice, arch: str, dtype: str) -> None:
    device = open_hip(arch)
    for n_rows, n_out, n_tiles in SHAPES:
        assert_bits(*run(device, dtype, n_rows, n_out, n_tiles))


def test_without_bias_and_residual(open_hip: OpenDevice, arch: str) -> None:
    assert_bits(*run(open_hip(arch), "q4_0", 3, 8, 2, plain=True))


def test_chunks_do_not_change_a_bit(open_hip: OpenDevice, arch: str) -> None:
    device = open_hip(arch)
    # A card that is soon filled.
    device.gpu = attrs.evolve(device.gpu, n_compute_units=1)
    assert choose_kind(DTYPES["q2_k"], n_out=256, n_rows=64, arch=arch, n_compute_units=1) == "matrix"
    whole = last_logits(device, [64])
    for sizes in ([20, 1, 3, 40], [3, 1, 20, 20, 20], [1] * 4 + [60]):
        assert_bits(last_logits(device, sizes), whole)


def last_logits(device: HipDevice, sizes: list[int]) -> NDArray[np.float32]:
    """Of a prompt of 64 tokens that goes in by chunks of these sizes."""
    program, tensors = RandomModel(
        dtype="q2_k", n_embd=256, n_ff=256, n_heads=2, n_kv_heads=1, n_layers=1, n_vocab=67
    ).build()
    limits = Limits(max_tokens=64, max_outputs=1, n_slots=1, max_seq=64)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    try:
        for size, start in zip(sizes, np.cumsum([0, *sizes]), strict=False):
            tokens = [(7 * i * i + 3 * i + 11) % 67 for i in range(start, start + size)]
            logits = executable.run(make_step(tokens, start=int(start), outputs=[size - 1]), CancelFlag()).whole()
        return logits.copy()
    finally:
        executable.close()


# What is changed in which source, and the emulator's report where there is one: elsewhere the bits are others.
FAULTS = {
    "rows in another family's order": ("matrix_cores.h", "row % 8 * 2 + row % SIDE / 8", "row % SIDE", None),
    "a missing barrier": ("matrix.hip", "lds);\n        meet_in_lds();", "lds);", "race in LDS"),
    "the last tile dropped": ("matrix.hip", "min_of(n_tiles - done,", "min_of(n_tiles - done - 1,", None),
    "strands joined in another order": ("strands.h", "STRANDS = 16", "STRANDS = 8", None),
    "high bytes too small": ("matrix.hip", "q[f] <<= 8", "q[f] <<= 7", None),
    "a row beyond the last": ("matrix.hip", "last_row = to.n_rows - 1", "last_row = to.n_rows", "out of bounds"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(
    gpu: Gpu, open_hip: OpenDevice, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *change, seen = FAULTS[fault]
    device = open_hip("gfx1100")
    device.objects = {"matrix": changed(tmp_path, monkeypatch, *change)}
    try:
        found, expected = run(device, "q4_0", 17, 20, 17)
    except HipError:
        assert seen in gpu.library.emulatorLastFault().decode()
        # What the lost stream still holds fails in the same way, until nothing is left of it.
        while gpu.library.hipDeviceSynchronize():
            gpu.library.emulatorClearFault()
    else:
        assert seen is None
        assert (found != expected).any()


def changed(folder: Path, monkeypatch: pytest.MonkeyPatch, file: str, right: str, wrong: str) -> bytes:
    """The kernels for gfx1100 with a change in a source; of one format, to be quick."""
    sources = folder / "hip"
    shutil.copytree(build_hip.HIP, sources)
    shutil.copy(build_hip.HERE / "layout.h", folder)
    one = ("matrix.hip", "\nQUANTISED_FORMATS(ROW)", "\nROW(q4_0, 32, 18, 4, 0, SCALES_D, 8)")
    for name, old, new in (one, (file, right, wrong)):
        text = (sources / name).read_text()
        assert old in text
        (sources / name).write_text(text.replace(old, new))
    monkeypatch.setattr(build_hip, "HIP", sources)
    monkeypatch.setattr(build_hip, "check", lambda *arguments: None)
    build_hip.compile_object("matrix", "gfx1100", folder / "changed.hsaco")
    return (folder / "changed.hsaco").read_bytes()
