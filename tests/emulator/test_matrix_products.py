"""The machine code of the product with many rows (matrix.hip) on every family, against NumPy, to the bit."""

import shutil
from ctypes import c_int, c_void_p
from pathlib import Path

import numpy as np
import pytest

from emulator.gpu import Gpu, GpuFault, GpuKernel
from emulator.quantised_twin import LAYOUTS, Activations, Floats, pack, product, random_matrix, unpack
from hipfire.dtypes import DTYPES, dequantize
from hipfire.kernels import build_hip
from hipfire.kernels.hip_table import KERNELS, MATRIX_OUTPUTS, MATRIX_ROWS
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.select import load_variant, machine_variants

pytestmark = pytest.mark.slow  # code objects are translated

COLUMN, MARGIN = 3, 7
"""Where the outputs begin in a row, and by how much a row is wider than they are."""

# Rows, outputs, tiles: parts of workgroups, more than one, a last pair of tiles that is one, strands of two tiles.
SHAPES = [(5, 12, 1), (17, 20, 17), (33, 9, 3), (70, 137, 4)]


def run(kernel: GpuKernel, dtype: str, rows: int, n_out: int, n_in: int, *, plain: bool = False) -> tuple[Floats, Floats]:
    """What the kernel writes, and what it should: every row whole. `plain`: without bias and residual."""
    rng = np.random.default_rng(rows)
    raw = random_matrix(rng, dtype, n_out, n_in)
    packed = pack(load_variant(machine_variants()[0]), dtype, raw, n_out, n_in)
    weights = unpack(packed, dtype, n_out, n_in)
    np.testing.assert_allclose(weights.values(), dequantize(raw, DTYPES[dtype], (n_out, n_in)), rtol=1e-5, atol=1e-6)
    x = Activations.of(rng.normal(0, 1, (rows, n_in)).astype(np.float32))
    width = COLUMN + n_out + MARGIN
    out, residual = (rng.normal(0, 1, (rows, width)).astype(np.float32) for _ in range(2))
    bias = rng.normal(0, 1, n_out).astype(np.float32)
    expected, mine = out.copy(), slice(COLUMN, COLUMN + n_out)
    expected[:, mine] = product(weights, x)
    if not plain:
        expected[:, mine] = expected[:, mine] + bias + residual[:, mine]
    kernel(
        *(packed, x.records(), *((c_void_p(), c_void_p()) if plain else (bias, residual)), out),
        *map(c_int, (n_out, n_in, width, COLUMN, rows)),
        grid=(-(-n_out // MATRIX_OUTPUTS), -(-rows // MATRIX_ROWS)),
        block=(KERNELS[f"linear_{dtype}_matrix"].n_threads,),
    )
    return out, expected


def assert_same_bits(found: Floats, expected: Floats) -> None:
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_every_format_and_ragged_shapes(gpu: Gpu, arch: str, dtype: str) -> None:
    kernel = gpu.kernel(arch, code_objects(arch)["matrix"], f"linear_{dtype}_matrix")
    for rows, n_out, n_tiles in SHAPES:
        block = DTYPES[dtype].block
        n_in = -(-n_tiles * 32 // block) * block
        assert_same_bits(*run(kernel, dtype, rows, n_out, n_in))


def test_without_bias_and_residual(gpu: Gpu, arch: str) -> None:
    kernel = gpu.kernel(arch, code_objects(arch)["matrix"], "linear_q4_0_matrix")
    assert_same_bits(*run(kernel, "q4_0", 3, 8, 64, plain=True))


# What is changed in which source, and what is seen: other bits, or a fault of the emulator's.
FAULTS = {
    "rows in the order of another family": ("matrix_cores.h", "row % 8 * 2 + row % SIDE / 8", "row % SIDE", None),
    "columns in another order": ("matrix.hip", "columns + (2 * part + at)", "columns + (2 * part + 1 - at)", None),
    "a missing barrier": ("matrix.hip", "put<F>(next, lds);\n        meet_in_lds();", "put<F>(next, lds);", "race in LDS"),
    "the last tile dropped": ("matrix.hip", "min_of(n_tiles - done, STAGE)", "min_of(n_tiles - done - 1, STAGE)", None),
    "strands joined in another order": ("strands.h", "STRANDS = 16", "STRANDS = 8", None),
    "a scale of another part": ("matrix.hip", "from.row_d[tile][row]", "from.row_d[0][row]", None),
    "high bytes taken for low ones": ("matrix.hip", "q[f] <<= 8", "q[f] <<= 7", None),
    "a row beyond the last": ("matrix.hip", "last_row = to.n_rows - 1", "last_row = to.n_rows", "out of bounds"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_shows(gpu: Gpu, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, right, wrong, seen = FAULTS[fault]
    kernel = gpu.kernel("gfx1100", changed(tmp_path, monkeypatch, file, right, wrong), "linear_q4_0_matrix")
    if seen is None:
        found, expected = run(kernel, "q4_0", 17, 20, 17 * 32)
        assert (found != expected).any()
    else:
        with pytest.raises(GpuFault, match=seen):
            run(kernel, "q4_0", 17, 20, 17 * 32)


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
