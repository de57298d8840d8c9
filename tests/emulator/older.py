"""Decoding tables of the architectures that the tinygrad wheel has none for, made of those that it has.

- GCN 5 and CDNA 1 and 2 are CDNA 3 but for a few opcodes, from AMD's ISA documents (Vega, MI100, MI200).
- RDNA 1 and 2 have RDNA 3's formats with other opcodes (`rdna2.tsv`, from LLVM: see llvm.py), except that memory
  formats hold some fields elsewhere, and that SDWA is still there.

What operands an operation has comes from the wheel, by its name.
"""

import enum
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tinygrad.renderer.amd.dsl import (
    BitField,
    EnumBitField,
    FixedBitField,
    Inst,
    SGPRField,
    SRsrcField,
    SSrcField,
    VGPRField,
)
from tinygrad.runtime.autogen.amd.cdna import ins as cdna
from tinygrad.runtime.autogen.amd.cdna.operands import OPERANDS as CDNA_OPERANDS
from tinygrad.runtime.autogen.amd.rdna3 import ins as rdna3
from tinygrad.runtime.autogen.amd.rdna3.operands import OPERANDS as RDNA3_OPERANDS

Rows = Mapping[str, Mapping[int, str]]
"""Per format, the name of each opcode."""

GCN5: Rows = {
    "VOP2": {4: "V_MUL_LEGACY_F32", 22: "V_MAC_F32", 23: "V_MADMK_F32", 24: "V_MADAK_F32"},
    "VOP3": {0x104: "V_MUL_LEGACY_F32", 0x116: "V_MAC_F32", 0x1C0: "V_MAD_LEGACY_F32", 0x1C1: "V_MAD_F32"},
    "VOP3P": {
        84: "V_MFMA_I32_32X32X8_I8",
        85: "V_MFMA_I32_16X16X16_I8",
        104: "V_MFMA_F32_32X32X2_2B_BF16",
        105: "V_MFMA_F32_16X16X2_4B_BF16",
        107: "V_MFMA_F32_4X4X2_16B_BF16",
        108: "V_MFMA_F32_32X32X4_BF16",
        109: "V_MFMA_F32_16X16X8_BF16",
    },
    "MUBUF": {62: "BUFFER_WBINVL1", 63: "BUFFER_WBINVL1_VOL"},
}
"""gfx906 and gfx908, where they differ from CDNA 3; gfx906 has no matrix instructions."""

CDNA2: Rows = {
    "VOP2": {opcode: name for opcode, name in GCN5["VOP2"].items() if opcode != 4},
    "VOP3": {opcode: name for opcode, name in GCN5["VOP3"].items() if opcode != 0x104},
    "VOP3P": {
        **GCN5["VOP3P"],
        99: "V_MFMA_F32_32X32X4_2B_BF16_1K",
        100: "V_MFMA_F32_16X16X4_4B_BF16_1K",
        101: "V_MFMA_F32_4X4X4_16B_BF16_1K",
        102: "V_MFMA_F32_32X32X8_BF16_1K",
        103: "V_MFMA_F32_16X16X16_BF16_1K",
    },
    "MUBUF": GCN5["MUBUF"],
}
"""gfx90a, where it differs from CDNA 3."""

SAME_OPERANDS = {
    "V_MAC_F32": "V_FMAC_F32",
    "V_MADMK_F32": "V_FMAMK_F32",
    "V_MADAK_F32": "V_FMAAK_F32",
    "V_MAD_F32": "V_FMA_F32",
    "V_MAD_LEGACY_F32": "V_FMA_F32",
    "V_MAC_LEGACY_F32": "V_FMAC_F32",
    "V_FMA_LEGACY_F32": "V_FMA_F32",
}
"""Operations that the wheel's tables lack, and those whose operands are of the same kinds."""

VOP3_BASES = {"VOPC": 0, "VOP2": 0x100, "VOP1": 0x180}
"""Where VOP3 repeats the opcodes of the short encodings."""

ENCODING_SUFFIX = re.compile(r"_E(32|64)$")


def _operands_by_name() -> dict[tuple[str, str], dict[str, Any]]:
    """The operands of an operation of a format: RDNA 3's where it has the name, else CDNA's."""
    found = {
        (type(op).__name__.removesuffix("Op"), ENCODING_SUFFIX.sub("", op.name)): operands
        for table in (CDNA_OPERANDS, RDNA3_OPERANDS)
        for op, operands in table.items()
    }
    for kind in ("VOP2", "VOP3"):
        for name, like in SAME_OPERANDS.items():
            if (kind, like) in found:
                found[kind, name] = found[kind, like]
    return found


OPERANDS = _operands_by_name()


class _Rdna2Flat(Inst):
    encoding = FixedBitField(31, 26, 0b110111)
    op = rdna3.FLAT.op
    vdst = VGPRField(63, 56)
    addr = VGPRField(39, 32)
    data = VGPRField(47, 40)
    saddr = SGPRField(54, 48)
    offset = BitField(11, 0)
    seg = FixedBitField(15, 14, 0)
    glc = BitField(16, 16)


class _Rdna2Global(_Rdna2Flat):
    seg = FixedBitField(15, 14, 2)


class _Rdna2Scratch(_Rdna2Flat):
    seg = FixedBitField(15, 14, 1)


class _Rdna2Buffer(Inst):
    encoding = FixedBitField(31, 26, 0b111000)
    op = rdna3.MUBUF.op
    vdata = VGPRField(47, 40)
    vaddr = VGPRField(39, 32)
    srsrc = SRsrcField(52, 48)
    soffset = SSrcField(63, 56)
    offset = BitField(11, 0)
    offen = BitField(12, 12)
    idxen = BitField(13, 13)
    glc = BitField(14, 14)
    lds = BitField(16, 16)


RDNA2_LAYOUTS: dict[str, type[Inst]] = {
    **{
        name: getattr(rdna3, name)
        for kind in (
            "SOP1",
            "SOP2",
            "SOPC",
            "SOPK",
            "SOPP",
            "SMEM",
            "DS",
            "VOP1",
            "VOP2",
            "VOPC",
            "VOP3",
            "VOP3SD",
            "VOP3P",
        )
        for name in (kind, f"{kind}_LIT", f"{kind}_DPP8", f"{kind}_DPP16", f"{kind}_SDST", f"{kind}_SDST_LIT")
        if hasattr(rdna3, name)
    },
    **{name: getattr(cdna, name) for name in ("VOP1_SDWA", "VOP2_SDWA", "VOPC_SDWA_SDST")},
    "FLAT": _Rdna2Flat,
    "GLOBAL": _Rdna2Global,
    "SCRATCH": _Rdna2Scratch,
    "MUBUF": _Rdna2Buffer,
}


def rdna2_formats() -> dict[str, type[Inst]]:
    """The formats of RDNA 1 and 2, by name."""
    rows: dict[str, dict[int, str]] = {}
    for line in (Path(__file__).parent / "rdna2.tsv").read_text().splitlines():
        kind, opcode, name = line.split("\t")
        rows.setdefault(kind, {})[int(opcode)] = name
    repeated = {base + n: name for kind, base in VOP3_BASES.items() for n, name in rows[kind].items()}
    every = {**rows["VOP3"], **repeated}
    rows["VOP3SD"] = {n: name for n, name in every.items() if ("VOP3SD", name) in OPERANDS}
    rows["VOP3"] = {n: name for n, name in every.items() if n not in rows["VOP3SD"]}
    return {name: _with_opcodes(name, layout, rows[name.partition("_")[0]]) for name, layout in RDNA2_LAYOUTS.items()}


def gcn_formats(changes: Rows) -> dict[str, type[Inst]]:
    """CDNA 3's formats with some opcodes changed, by name."""
    formats = {name: each for name, each in vars(cdna).items() if isinstance(each, type) and issubclass(each, Inst)}
    for name, layout in formats.items():
        kind = name.partition("_")[0]
        if kind in changes:
            rows = {each.value: ENCODING_SUFFIX.sub("", each.name) for each in layout.op.allowed}
            formats[name] = _with_opcodes(name, layout, _changed(rows, changes[kind], name))
    return formats


def _changed(rows: dict[int, str], changes: Mapping[int, str], name: str) -> dict[int, str]:
    kept = {opcode: each for opcode, each in rows.items() if opcode not in changes}
    if "_SDST" in name:
        return kept
    return kept | {n: each for n, each in changes.items() if each.startswith("V_MFMA") == name.endswith("_MFMA")}


def _with_opcodes(name: str, layout: type[Inst], rows: Mapping[int, str]) -> type[Inst]:
    """A format with other opcodes. Compares are in the variant whose destination is scalar, as in the wheel."""
    if name.startswith("VOP3") and layout.__module__ == rdna3.__name__ and name.partition("_")[0] == "VOP3":
        scalar = "_SDST" in name
        rows = {n: each for n, each in rows.items() if each.startswith("V_CMP") == scalar}
    kind = name.partition("_")[0]
    opcodes = enum.Enum(f"{kind}Op", {each: n for n, each in rows.items()})  # type: ignore[misc]
    operands = {each: OPERANDS.get((kind, each.name), {}) for each in opcodes}
    body = {
        "op": EnumBitField(layout.op.hi, layout.op.lo, opcodes, set(opcodes)),
        "operands": property(lambda self: operands[self.op]),
        "_is_cdna": lambda self: layout.__module__ == cdna.__name__,
    }
    return type(name, (layout,), body)
