"""When matrix cores are chosen, and the model of how far they are used."""

import pytest

from hipfire.dtypes import DTYPES
from hipfire.kernels.code_object import KernelInfo
from hipfire.kernels.gpu_limits import CARDS, Card
from hipfire.kernels.instruction_counts import Counts, instruction_class, lds_nbytes
from hipfire.kernels.linear_kinds import choose_kind
from hipfire.kernels.prefill import prefill

CARD = Card(
    name="card", arch="gfx1100", n_compute_units=8, simds_per_unit=2, clock_hz=1e9, bytes_per_s=100e9, valu_cycles=1,
    matrix_ops_per_cycle=512,
)  # fmt: skip
KERNEL = KernelInfo(
    name="k", arguments=(), n_threads=256, wave_size=32, n_vgprs=24, n_sgprs=24, lds_nbytes=0, scratch_nbytes=0,
    n_spills=0,
)  # fmt: skip
COUNTS = Counts(
    n_weights=1 << 15, n_rows=64, weights_nbytes=0, classes={"matrix": 1024, "convert": 2048, "slow": 512, "lds": 9},
    lane_nbytes=1024, lds_nbytes=2048, rounds=1,
)  # fmt: skip


def test_the_times_are_made_of_the_counts() -> None:
    # The wanted products take 4 * 32768 * 64 / 512 = 16384 cycles of a compute unit.
    found = prefill(COUNTS, KERNEL, CARD, n_workgroups=6)
    assert found.matrix == 1024 * 8192 / 512 / 16384 == 1
    assert found.vector == (2048 + 4 * 512) / 2 / 16384
    assert found.lds == 2048 * 32 / 128 / 16384
    assert found.cache == 1024 * 32 / 64 / 16384
    assert (found.best, found.worst) == (1, 1 / (1 + found.vector))
    assert found.bound == "matrix"


def test_workgroups_come_in_whole_rounds() -> None:
    # Of this family two compute units share a workgroup: there are four places.
    filled = [prefill(COUNTS, KERNEL, CARD, n_workgroups=n).filled for n in (1, 4, 6, 8)]
    assert filled == [0.25, 1, 0.75, 1]


@pytest.mark.parametrize(
    ("instruction", "nbytes"),
    [
        ("ds_load_b128(v[0:3])", 16), ("ds_load_2addr_b64(v[0:3])", 16), ("ds_read2_b64(v[0:3])", 16),
        ("ds_write2st64_b32(v[0])", 8), ("ds_store_2addr_stride64_b32(v[0])", 8), ("ds_write_b32(v[0])", 4),
        ("global_load_b128(v[0:3])", 0), ("v_add_f32(v[0])", 0),
    ],
)  # fmt: skip
def test_bytes_to_and_from_lds(instruction: str, nbytes: int) -> None:
    assert lds_nbytes(instruction) == nbytes


def test_matrix_instructions_have_a_class() -> None:
    for instruction in ("v_wmma_i32_16x16x16_iu8(v[0:7])", "v_mfma_i32_16x16x32_i8(v[0:3])"):
        assert instruction_class(instruction) == "matrix"


def chosen(arch: str, n_out: int, n_rows: int, dtype: str = "q4_0", n_compute_units: int = 48) -> str:
    return choose_kind(DTYPES[dtype], n_out=n_out, n_rows=n_rows, arch=arch, n_compute_units=n_compute_units)


@pytest.mark.parametrize("arch", ["gfx1030", "gfx1100", "gfx1201", "gfx90a", "gfx942"])
def test_few_rows_are_not_worth_a_workgroup_of_64(arch: str) -> None:
    assert [chosen(arch, 4096, n_rows) for n_rows in (1, 2, 5)] == ["x1", "x4", "x4"]
    assert chosen(arch, 14336, 512) == "matrix"
    assert chosen(arch, 14336, 512, "f16") == "x4"


def test_a_matrix_too_small_for_the_card_is_left_to_smaller_workgroups() -> None:
    # 8 workgroups on 304 compute units.
    assert chosen("gfx942", 1024, 64, n_compute_units=304) == "x4"
    assert chosen("gfx942", 1024, 2048, n_compute_units=304) == "matrix"


def test_matrix_cores_that_are_quicker_pay_from_fewer_rows_on() -> None:
    first = {
        arch: next(n for n in range(2, 4096) if chosen(arch, 8192, n) == "matrix")
        for arch in ("gfx1030", "gfx1100", "gfx1201")
    }
    assert first["gfx1201"] < first["gfx1100"] <= first["gfx1030"]


def test_every_card_of_the_report_has_matrix_cores() -> None:
    assert all(card.matrix_ops_per_cycle >= 512 for card in CARDS)
