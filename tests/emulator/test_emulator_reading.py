"""Reading code objects: metadata, descriptors, instructions."""

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator.code_object import CodeObjectError, read_code_object
from emulator.conftest import ARCHS, HERE, MATRIX_ARCHS, lanes_of
from emulator.decode import UnknownArch, decode, family_of
from emulator.encode import constant_bits
from emulator.translate import main


def test_metadata_and_descriptor(code_object: Callable[..., bytes], arch: str) -> None:
    found = read_code_object(code_object("rows.hip", arch))
    kernels = {kernel.name: kernel for kernel in found.kernels}
    assert found.arch == arch
    assert set(kernels) == {"rmsnorm", "softmax", "transpose"}
    rmsnorm = kernels["rmsnorm"]
    assert (rmsnorm.lanes, rmsnorm.lds_bytes, rmsnorm.scratch_bytes, rmsnorm.n_spills) == (
        lanes_of(arch),
        4096,
        0,
        0,
    )
    given = [(each.offset, each.size) for each in rmsnorm.arguments if not each.hidden]
    assert given == [(0, 8), (8, 8), (16, 8), (24, 4), (28, 4)]
    assert {each.kind for each in rmsnorm.arguments if each.hidden} >= {"hidden_block_count_x", "hidden_group_size_x"}
    assert 0 < rmsnorm.n_vgpr < 64
    assert kernels["transpose"].lds_bytes == 0


def test_every_instruction_is_one(code_object: Callable[..., bytes], arch: str) -> None:
    for source in sorted((HERE / "kernels").glob("*.hip")):
        if source.name == "matrix.hip" and arch not in MATRIX_ARCHS:
            continue
        code = read_code_object(code_object(source.name, arch)).code
        instructions = list(decode(code, family_of(arch)))
        last = max(n for n, each in enumerate(instructions) if repr(each.inst).startswith("s_endpgm"))
        assert all(each.inst is not None for each in instructions[:last])


@pytest.mark.parametrize("arch", ["gfx803", "gfx900", "gfx90c", "gfx13"])
def test_families_without_tables(arch: str) -> None:
    with pytest.raises(UnknownArch, match=rf"^{arch}: no decoding tables; there are some for gfx906, .*, gfx12$"):
        family_of(arch)


def test_other_files_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(CodeObjectError, match="not an ELF file"):
        read_code_object(b"MZ\0\0")
    (tmp_path / "text").write_bytes(b"hello")
    assert main([str(tmp_path / "text"), str(tmp_path / "out")]) == 1
    assert "not an ELF file: it begins with b'hell'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("number", "literal", "fmt", "bits", "expected"),
    [
        (128 + 5, 0, "FMT_NUM_U32", 32, 5),
        (192 + 3, 0, "FMT_NUM_I32", 32, -3),
        (242, 0, "FMT_NUM_F32", 32, 0x3F800000),
        (242, 0, "FMT_NUM_F16", 16, 0x3C00),
        (242, 0, "FMT_NUM_PK2_F16", 32, 0x3C00),
        (242, 0, "FMT_NUM_BF16", 16, 0x3F80),
        (242, 0, "FMT_NUM_F64", 64, 0x3FF0000000000000),
        (242, 0, "FMT_NUM_PK2_F32", 64, 0x3F8000003F800000),
        (255, 0x40490FDB, "FMT_NUM_F64", 64, 0x40490FDB00000000),
        (255, 0x80000000, "FMT_NUM_I64", 64, -0x80000000),
        (255, 0x80000000, "FMT_NUM_U64", 64, 0x80000000),
    ],
)
def test_constants_take_the_operand_s_type(number: int, literal: int, fmt: str, bits: int, expected: int) -> None:
    assert constant_bits(number, literal, fmt, bits) == expected


def test_architectures_have_families() -> None:
    assert [family_of(arch) for arch in ARCHS] == ["rdna3", "rdna4", "cdna3", "cdna2", "gcn5", "rdna2"]
    assert (family_of("gfx908"), family_of("gfx950"), family_of("gfx1010")) == ("gcn5", "cdna3", "rdna2")
