"""Every instruction is read as LLVM's disassembler reads it: samples of each kind here, all that is shipped at night.

`python -m emulator.llvm samples fixtures/disassembly …` made the samples, of the shipped objects and of `kernels/`.
"""

import functools
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from emulator.conftest import ARCHS
from emulator.decode import decode, family_of
from emulator.encode import encode
from emulator.llvm import disassembly, rdna2_rows, tool
from emulator.llvm_text import disagreements
from emulator.translate import RULES
from hipfire.kernels.build_hip import FOLDER
from hipfire.kernels.hip_table import TARGETS

SAMPLES = Path(__file__).parents[2] / "fixtures" / "disassembly"


def compare(arch: str, instructions: Iterable[tuple[bytes, str]]) -> Iterator[str]:
    family = family_of(arch)
    for data, text in instructions:
        found = next(iter(decode(data, family)))
        if found.inst is None or found.size != len(data):
            yield f"{data.hex()} {text}: {found}"
            continue
        opcode = found.inst.op.name if hasattr(found.inst, "op") else found.inst.opx.name
        for what in disagreements(text, opcode, encode(found.inst, RULES[family])):
            yield f"{data.hex()} {text}: {what}"


def samples(arch: str) -> list[tuple[bytes, str]]:
    lines = (SAMPLES / f"{arch}.txt").read_text().splitlines()
    return [(bytes.fromhex(data), text) for data, _, text in (line.partition(" ") for line in lines)]


@pytest.mark.parametrize("arch", ARCHS)
def test_samples_are_read_as_llvm_reads_them(arch: str) -> None:
    given = samples(arch)
    assert len(given) > 500
    assert list(compare(arch, given)) == []


@pytest.mark.parametrize(
    ("arch", "data", "text"),
    [
        ("gfx1030", "e902027e02773905", "v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0]"),
        ("gfx1030", "79a88cbf", "s_waitcnt vmcnt(41) lgkmcnt(40)"),
        ("gfx1030", "fa060206021395a5", "v_add_f32_dpp v1, -v2, |v3| row_shr:3 row_mask:0xa bank_mask:0x5 fi:1"),
        ("gfx1030", "fb8f30dc02000401", "global_load_dword v1, v2, s[4:5] offset:-5"),
        ("gfx1030", "01804bd5ff040e8cdb0f4940", "v_fma_f32 v1, 0x40490fdb, v2, -v3 clamp mul:2"),
        ("gfx1030", "f904027c01840502", "v_cmp_lt_f32_sdwa s4, v1, v2 src0_sel:WORD_1 src1_sel:BYTE_2"),
        ("gfx1030", "040120f4000000f8", "s_buffer_load_dword s4, s[8:11], m0"),
        ("gfx1030", "000030dc02007d01", "flat_load_dword v1, v[2:3]"),
        ("gfx1030", "101030e002010203", "buffer_load_dword v1, v2, s[8:11], s3 offen offset:16"),
        ("gfx1100", "ea02027e02773905", "v_mov_b32_dpp v1, v2 dpp8:[7,6,5,4,3,2,1,0] fi:1"),
        ("gfx1201", "e906022c02d1581f", "v_max_num_f32_dpp v1, v2, v3 dpp8:[1,2,3,4,5,6,7,0]"),
        ("gfx906", "79898cbf", "s_waitcnt vmcnt(41) lgkmcnt(9)"),
        ("gfx906", "02070230db0f4940", "v_madak_f32 v1, v2, v3, 0x40490fdb"),
        ("gfx906", "0207022edb0f4940", "v_madmk_f32 v1, v2, 0x40490fdb, v3"),
        ("gfx906", "02070208", "v_mul_legacy_f32_e32 v1, v2, v3"),
        ("gfx90a", "040d0408", "v_fmac_f64_e32 v[2:3], v[4:5], v[6:7]"),
        ("gfx90a", "0080ecd302070204", "v_mfma_f32_32x32x4bf16 a[0:15], v2, v3, a[0:15]"),
        (
            "gfx942",
            "f902027e02110b00",
            "v_mov_b32_sdwa v1, sext(v2) dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_3",
        ),
    ],
)
def test_what_no_kernel_holds_is_read_as_llvm_reads_it(arch: str, data: str, text: str) -> None:
    assert list(compare(arch, [(bytes.fromhex(data), text)])) == []


@functools.cache
def by_text(arch: str) -> dict[str, bytes]:
    return {text: data for data, text in samples(arch)}


@pytest.mark.parametrize(
    ("arch", "begin", "right", "wrong"),
    [
        ("gfx1100", "v_fma_f32 v", ", v", ", s"),
        ("gfx1100", "v_fma_f32 v", "v_fma_f32", "v_mad_f32"),
        ("gfx1100", "v_cndmask_b32_e64 v", ", s", ", -s"),
        ("gfx1100", "v_dual_", " ::", "0 ::"),
        ("gfx1100", "s_waitcnt vmcnt(", "vmcnt(", "vmcnt(1"),
        ("gfx1100", "v_pk_fma_f16", ", v", ", v1"),
        ("gfx1100", "ds_load_2addr_b32", "offset1:", "offset1:1"),
        ("gfx1030", "global_load_dwordx4", "dwordx4", "dwordx2"),
        ("gfx1030", "global_store_dword v", "off offset:", "off offset:1"),
        ("gfx1030", "s_load_dword s", "null", "m0"),
        ("gfx1030", "v_add_f32_dpp", "row_mask:0xf", "row_mask:0xa"),
        ("gfx1030", "v_cvt_f32_f16_sdwa", "src0_sel:WORD_1", "src0_sel:WORD_0"),
        ("gfx1030", "ds_read2_b32", "offset1:", "offset1:1"),
        ("gfx1201", "s_wait_loadcnt 0x", "0x", "0x1"),
        ("gfx1201", "s_load_b128 s", ", s[", ", ttmp["),
        ("gfx90a", "v_mfma_f32_16x16x16f16", "v[0:3], v", "v[0:3], a"),
        ("gfx906", "v_mad_f32", "v_mad_f32", "v_fma_f32"),
        ("gfx906", "s_mov_b32 s", "b32 s", "b32 s1"),
        ("gfx942", "buffer_load_dword", "offen", "offen offset:4"),
    ],
)
def test_another_text_would_be_noticed(arch: str, begin: str, right: str, wrong: str) -> None:
    text = next(each for each in by_text(arch) if each.startswith(begin) and right in each)
    data = by_text(arch)[text]
    assert list(compare(arch, [(data, text.replace(right, wrong, 1))]))


@pytest.mark.nightly
@pytest.mark.parametrize("arch", TARGETS)
def test_shipped_code_is_read_as_llvm_reads_it(arch: str) -> None:
    objects = sorted((FOLDER / arch).glob("*.hsaco"))
    unique = {data: text for path in objects for data, text in disassembly(tool("llvm-objdump"), path)}
    assert len(unique) > 1000
    assert list(compare(arch, unique.items())) == []


@pytest.mark.nightly
def test_rdna2_s_opcodes_are_llvm_s() -> None:
    table = Path(__file__).with_name("rdna2.tsv").read_text().splitlines()
    assert table == ["\t".join(map(str, row)) for row in rdna2_rows(tool("llvm-mc"))]
