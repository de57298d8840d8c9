"""The report on compiled kernels: occupancy, classes of instructions, the model's arithmetic, and what is printed."""

import json
from pathlib import Path

import attrs
import pytest

from hipfire.dtypes import DTYPES
from hipfire.kernels import attention_counts, report
from hipfire.kernels.attention_counts import read_attention_counts
from hipfire.kernels.code_object import KernelInfo, read_kernels
from hipfire.kernels.gpu_limits import CARDS, LIMITS, Card, waves_per_simd
from hipfire.kernels.hip_table import KERNELS, TARGETS
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.instruction_counts import PATH, Counts, StaleCounts, instruction_class, load_nbytes, read_counts
from hipfire.kernels.linear_kinds import choose_kind, kinds_of
from hipfire.kernels.roofline import LATENCY_S, roofline

KERNEL = KernelInfo(
    name="k", arguments=(), n_threads=128, wave_size=32, n_vgprs=24, n_sgprs=24, lds_nbytes=0, scratch_nbytes=0,
    n_spills=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("arch", "n_vgprs", "waves"),
    [
        ("gfx1100", 62, 16), ("gfx1100", 97, 12), ("gfx1100", 256, 5), ("gfx1102", 65, 12), ("gfx1030", 64, 16),
        ("gfx1010", 48, 20), ("gfx1010", 57, 16), ("gfx906", 24, 8), ("gfx906", 62, 4), ("gfx942", 70, 7),
    ],
)  # fmt: skip
def test_occupancy_by_vector_registers(arch: str, n_vgprs: int, waves: int) -> None:
    info = attrs.evolve(KERNEL, n_vgprs=n_vgprs, wave_size=LIMITS[arch].wave_size)
    assert waves_per_simd(info, LIMITS[arch]) == waves


def test_occupancy_by_what_else_there_is() -> None:
    gcn, rdna = LIMITS["gfx906"], LIMITS["gfx1100"]
    assert waves_per_simd(attrs.evolve(KERNEL, n_sgprs=100), gcn) == 7
    assert waves_per_simd(attrs.evolve(KERNEL, n_sgprs=100), rdna) == 16
    # Five workgroups of four waves on four SIMDs; 64 KiB hold two of two waves.
    assert waves_per_simd(attrs.evolve(KERNEL, lds_nbytes=25 << 10), rdna) == 5
    assert waves_per_simd(attrs.evolve(KERNEL, lds_nbytes=32 << 10, wave_size=64), gcn) == 1


def test_every_architecture_has_limits_of_its_wave() -> None:
    assert set(LIMITS) == set(TARGETS)
    for arch in TARGETS:
        for code in code_objects(arch).values():
            assert {info.wave_size for info in read_kernels(code).values()} == {LIMITS[arch].wave_size}


@pytest.mark.parametrize(
    ("instruction", "expected"),
    [
        ("v_fmac_f32_e32(v[1], v[2], v[3])", "multiply-add"), ("v_pk_fma_f32(v[1:2])", "multiply-add"),
        ("v_mad_mix_f32(v[1])", "multiply-add"), ("v_dot4_i32_iu8(v[1])", "multiply-add"),
        ("VOPD(VOPDOp.V_DUAL_MOV_B32, VOPDOp.V_DUAL_MOV_B32, v[8])", "integer"),
        ("VOPD_LIT(VOPDOp.V_DUAL_AND_B32, VOPDOp.V_DUAL_FMAC_F32, v[8])", "multiply-add"),
        ("v_cvt_f32_ubyte0_e32(v[1], v[1])", "convert"), ("v_bfe_u32(v[1], v[2], 8, 4)", "unpack"),
        ("v_add_nc_u32_e32(v[7], 16, v[7])", "integer"), ("v_mul_u32_u24_e32(v[1])", "integer"),
        ("v_mul_hi_u32_u24_e32(v[2])", "integer"), ("v_mul_hi_u32(v[2])", "slow"), ("v_mul_lo_u32(v[2])", "slow"),
        ("v_mad_u64_u32(v[3:4], NULL)", "slow"), ("v_exp_f32_e32(v[1])", "slow"), ("v_swap_b32(v[1])", "other vector"),
        ("s_waitcnt(3063)", "hint"), ("s_wait_loadcnt(0)", "hint"), ("s_delay_alu(1)", "hint"),
        ("s_load_b64(s[2:3])", "scalar load"), ("s_endpgm()", "scalar"), ("ds_bpermute_b32(v[1])", "lds"),
        ("global_load_b128(v[12:15], v[1:2])", "memory"),
    ],
)  # fmt: skip
def test_classes(instruction: str, expected: str) -> None:
    assert instruction_class(instruction) == expected


def test_an_instruction_of_no_class_is_an_error() -> None:
    with pytest.raises(ValueError, match="no class for the instruction image_load"):
        instruction_class("image_load(v[1])")


@pytest.mark.parametrize(
    ("instruction", "nbytes"),
    [
        ("global_load_b128(v[0:3])", 16), ("global_load_dwordx2(v[0:1])", 8), ("global_load_dword(v[0])", 4),
        ("global_load_u8(v[0])", 1), ("global_load_ushort(v[0])", 2), ("global_load_d16_u8(v[0])", 1),
        ("global_load_d16_hi_b16(v[0])", 2), ("global_store_b32(v[0])", 0), ("s_load_b64(s[0:1])", 0),
    ],
)  # fmt: skip
def test_bytes_of_loads(instruction: str, nbytes: int) -> None:
    assert load_nbytes(instruction) == nbytes


CARD = Card(
    name="card", arch="gfx1100", n_compute_units=10, simds_per_unit=2, clock_hz=1e9, bytes_per_s=100e9, valu_cycles=1,
    matrix_ops_per_cycle=512,
)  # fmt: skip
COUNTS = Counts(
    n_weights=100_000,
    n_rows=1,
    weights_nbytes=100_000,
    classes={"convert": 6000, "slow": 1000, "memory": 2000, "scalar": 3000, "hint": 9999},
    lane_nbytes=10_000,
    lds_nbytes=0,
    rounds=100,
)


def test_the_roofline_is_made_of_its_counts() -> None:
    # The memory takes a microsecond; 20 SIMDs 10,000 turns in half of it.
    found = roofline(COUNTS, KERNEL, CARD, n_workgroups=1 << 17)
    assert found.vector == pytest.approx(0.5)
    assert found.issue == pytest.approx(0.75)
    assert found.cache == pytest.approx(10_000 * 32 / (10 * 64) / 1000)
    # 320 waves share 100 GB/s; each asks for 1000 bytes and then works for 100 cycles.
    assert found.latency == pytest.approx((LATENCY_S + 100e-9) / (1000 / (100e9 / 320)))
    assert (found.best, found.worst, found.bound) == (1.0, 1.0, "memory")


def test_the_fraction_is_that_of_the_slowest() -> None:
    found = roofline(
        attrs.evolve(COUNTS, classes={"convert": 20_000, "scalar": 20_000}), KERNEL, CARD, n_workgroups=1 << 17
    )
    assert (found.bound, found.best, found.worst) == ("memory", 1.0, pytest.approx(0.5))
    found = roofline(COUNTS, KERNEL, attrs.evolve(CARD, valu_cycles=4), n_workgroups=1 << 17)
    assert (found.bound, found.best, found.worst) == ("vector", pytest.approx(0.5), pytest.approx(1 / 3))


def test_a_small_matrix_does_not_fill_a_card() -> None:
    found = roofline(COUNTS, KERNEL, CARD, n_workgroups=2)
    # Two workgroups of four waves instead of 320.
    assert found.latency == pytest.approx(320 / 8 * roofline(COUNTS, KERNEL, CARD, n_workgroups=1 << 17).latency)
    assert found.bound == "latency"
    assert found.worst == found.best < 0.1


def test_the_counts_are_of_the_committed_objects() -> None:
    # If not: run benchmarks/gpu_instructions.py.
    for card in CARDS:
        counted = {
            f"linear_{name}_{kind}"
            for name, dtype in DTYPES.items()
            for kind, of in kinds_of(dtype).items()
            if of.n_rows == 1 or kind == "matrix"
        }
        assert read_counts(card.arch).keys() == counted


def test_attention_is_counted_as_it_is_committed() -> None:
    # If not: run benchmarks/gpu_attention.py.
    for card in CARDS:
        assert read_attention_counts(card.arch).keys() == {"attention_f16_x4", "attention_q8_x4"}


def test_attention_has_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--roofline", "--arch", "gfx942", "--kernel", "attention"]
    assert report.main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["kernel"], row["bytes_per_element"]) for row in rows] == [
        ("attention_f16_x4", 2.0),
        ("attention_q8_x4", 1.0625),
    ]
    assert report.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "over 2000 positions" in printed
    assert "attention_q8_x4" in printed
    assert "A matrix" not in printed


def test_counts_of_other_attention_are_refused(tmp_path: Path) -> None:
    document = json.loads(attention_counts.PATH.read_text())
    document["objects"]["gfx1100"] = "0" * 64
    stale = tmp_path / "counts.json"
    stale.write_text(json.dumps(document))
    with pytest.raises(StaleCounts, match="gpu_attention"):
        read_attention_counts("gfx1100", stale)


def test_counts_of_other_objects_are_refused(tmp_path: Path) -> None:
    document = json.loads(PATH.read_text())
    document["objects"]["gfx1100"]["linear"] = "0" * 64
    stale = tmp_path / "counts.json"
    stale.write_text(json.dumps(document))
    with pytest.raises(StaleCounts, match="another build"):
        read_counts("gfx1100", stale)


def test_the_report_has_every_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--arch", "gfx1100", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["kernel"] for row in rows} == set(KERNELS)
    assert all(row["spills"] == row["scratch_bytes"] == 0 and row["code_bytes"] > 0 for row in rows)


def test_filters_and_tables(capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--arch", "gfx942", "--kernel", "rms"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert lines[1].split()[:2] == ["gfx942", "rms_norm"]
    assert report.main(["--roofline", "--arch", "gfx942", "--kernel", "q4_0", "--n-out", "64"]) == 0
    printed = capsys.readouterr().out
    assert "linear_q4_0_few" in printed
    assert "0.562" in printed
    assert "A matrix of 64 outputs" in printed
    assert "(latency)" in printed


def test_a_matrix_with_too_few_outputs_for_the_card_gets_more_lanes() -> None:
    q4_0, f16 = DTYPES["q4_0"], DTYPES["f16"]
    assert choose_kind(q4_0, n_out=3199, n_rows=1, arch="gfx1100", n_compute_units=100) == "few"
    assert choose_kind(q4_0, n_out=3200, n_rows=1, arch="gfx1100", n_compute_units=100) == "x1"
    assert choose_kind(q4_0, n_out=8, n_rows=2, arch="gfx1100", n_compute_units=100) == "x4"
    assert choose_kind(q4_0, n_out=8, n_rows=500, arch="gfx1100", n_compute_units=100) == "x4"
    assert choose_kind(f16, n_out=8, n_rows=1, arch="gfx1100", n_compute_units=100) == "x1"


def test_prefill_has_a_table_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--roofline", "--n-rows", "64", "--n-out", "256", "--arch", "gfx942", "--kernel", "q4_0"]
    assert report.main(asked) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "gfx942" in line)
    # Two workgroups on 304 compute units.
    assert row.split()[1] == "linear_q4_0_matrix"
    assert row.split()[-1] == "1%"
    assert report.main([*asked, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert found["matrix"] == 1
    assert 0 < found["fraction_worst"] < found["fraction_best"] <= 1
