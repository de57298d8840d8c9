"""The machine code of integer activations and products, to the bit: the same numbers on every architecture."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from devices.kernel_calls import KernelCalls
from devices.products import linear, packed_matrix
from devices.q16 import ACTIVATIONS, LAYOUTS, product, quantised, unpacked
from numpy.typing import NDArray

from emulator.compile import compile_hip
from emulator.conftest import OpenDevice
from hipfire.devices.hip import HipDevice
from hipfire.dtypes import DTYPES
from hipfire.kernels import build_hip
from hipfire.kernels.build import zig_path
from hipfire.kernels.linear_kinds import QUANTISED_KINDS

pytestmark = pytest.mark.slow  # code objects are translated

N_OUT, N_IN = 19, 4352
"""Tiles for every strand and turn of the kernels, and for some a last one by itself."""


def rows() -> NDArray[np.void]:
    return quantised(np.random.default_rng(1).standard_normal((2, N_IN)).astype(np.float32))


def test_rows_become_integers_of_16_bits(open_hip: OpenDevice, arch: str) -> None:
    n = 1056
    x = np.random.default_rng(0).standard_normal((2, n)).astype(np.float32)
    x[1, :96].reshape(3, 32)[:] *= np.float32([[0], [1e-42], [1e38]])
    found = np.empty((2, n // 32), ACTIVATIONS)
    with KernelCalls(open_hip(arch)) as call:
        call("quantise", (-(-n // 256), 2), x=x, out_q16=found, n=n)
    np.testing.assert_array_equal(found.view(np.uint8), quantised(x).view(np.uint8))


def assert_products(device: HipDevice, dtype: str, kinds: list[str]) -> None:
    x_q16, packed = rows(), packed_matrix(device, dtype, N_OUT, N_IN)
    expected = product(x_q16, unpacked(packed, dtype, N_IN))[:, :N_OUT]
    with KernelCalls(device) as call:
        for kind in kinds:
            found = linear(call, f"{dtype}_{kind}", packed, x_q16, N_OUT)
            np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("dtype", LAYOUTS)
def test_products_are_exact_sums_in_one_order(open_hip: OpenDevice, arch: str, dtype: str) -> None:
    assert_products(open_hip(arch), dtype, list(QUANTISED_KINDS))


# What is changed in which source.
FAULTS = {
    "nothing": ("hip.h", "sum.hi * 256 + sum.lo", "sum.hi * 256 + sum.lo"),
    "no low bytes": ("hip.h", "sum.hi * 256 + sum.lo", "sum.hi * 256"),
    "strands in another order": ("linear.hip", "(group * STRANDS + strand) *", "(group * STRANDS + 15 - strand) *"),
    "a sum that is rounded once more": ("strands.h", "fma_of(w.m, x.whole, acc)", "acc + w.m * x.whole"),
    "another lane's output": ("linear.hip", "j & 1 ? pair[1] : pair[0]", "j & 1 ? pair[0] : pair[1]"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_product_shows(
    open_hip: OpenDevice, fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, right, wrong = FAULTS[fault]
    sources = tmp_path / "hip"
    shutil.copytree(build_hip.HIP, sources)
    text = (sources / file).read_text()
    assert right in text
    (sources / file).write_text(text.replace(right, wrong))
    # Of one format, which compiles in a tenth of the time.
    layouts = (build_hip.HERE / "layout.h").read_text().splitlines()
    others = [line for line in layouts if line.strip().startswith("ROW(") and "q4_k" not in line]
    assert len(others) == len(DTYPES) - 1
    (tmp_path / "layout.h").write_text("\n".join(line for line in layouts if line not in others))
    device = open_hip("gfx1100")
    include = str(zig_path().parent / "lib" / "include")
    options = ("-std=c++20", "-ffreestanding", "-ffp-contract=off", "-internal-isystem", include)
    code = compile_hip(sources / "linear.hip", "gfx1100", options)
    monkeypatch.setitem(device.objects, "linear", code)
    if fault == "nothing":
        assert_products(device, "q4_k", ["x1", "few"])
        return
    with pytest.raises(AssertionError, match="not equal"):
        assert_products(device, "q4_k", ["x1", "few"])
