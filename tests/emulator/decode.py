"""Machine code to instructions, by the tables in the tinygrad wheel and those that `older` makes of them.

The wheel's classes say which bits of a format are what; which format a word has, and which variant of it (a literal,
DPP, SDWA), is found here. Knows nothing of what an instruction does.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping

import attrs
from tinygrad.renderer.amd.dsl import EnumBitField, FixedBitField, Inst, SrcField
from tinygrad.runtime.autogen.amd.cdna import ins as cdna
from tinygrad.runtime.autogen.amd.rdna3 import ins as rdna3
from tinygrad.runtime.autogen.amd.rdna4 import ins as rdna4

from emulator.older import CDNA2, GCN5, gcn_formats, rdna2_formats

FAMILIES = {
    "gfx906": "gcn5",
    "gfx908": "gcn5",
    "gfx90a": "cdna2",
    "gfx942": "cdna3",
    "gfx950": "cdna3",
    "gfx10": "rdna2",
    "gfx11": "rdna3",
    "gfx12": "rdna4",
}
"""Decoding tables by an architecture's name, or what it begins with."""

TABLES: Mapping[str, Callable[[], Mapping[str, type[Inst]]]] = {
    "gcn5": lambda: gcn_formats(GCN5),
    "cdna2": lambda: gcn_formats(CDNA2),
    "cdna3": lambda: vars(cdna),
    "rdna2": rdna2_formats,
    "rdna3": lambda: vars(rdna3),
    "rdna4": lambda: vars(rdna4),
}

VARIANT = re.compile(r"_(LIT|DPP8|DPP16|SDWA|SDWA_SDST)$")
NOT_COMPUTE = ("EXP", "MIMG", "MTBUF", "LDSDIR", "VINTERP", "VEXPORT", "VIMAGE", "VSAMPLE", "VDSDIR", "VTBUFFER")
SOURCE_FIELDS = ("src0", "src1", "src2", "ssrc0", "ssrc1", "srcx0", "srcy0")
LITERAL_OPCODE = re.compile(r"(FMA|MAD)[AM]K_|_IMM32_")
LITERAL, SDWA, DPP16, DPP8 = 255, 249, 250, (233, 234)
"""Values of a source field that announce another word; the second of DPP8 lets inactive lanes be read."""

LONGEST = 16


class UnknownArch(Exception):
    """There are no decoding tables for an architecture."""


@attrs.frozen(kw_only=True)
class Decoded:
    """An instruction at byte offset `pc` of the code. `inst` is None for a word that no format fits."""

    pc: int
    size: int
    inst: Inst | None


@attrs.frozen
class Format:
    """A format and what the first word of its instructions looks like."""

    layout: type[Inst]
    variants: Mapping[str, type[Inst]]
    mask: int
    value: int
    opcode_at: int
    opcode_mask: int
    opcodes: frozenset[int]
    sources: tuple[tuple[int, int], ...]
    rdna: bool

    def fits(self, word: int) -> bool:
        return word & self.mask == self.value and (
            not self.opcode_mask or (word >> self.opcode_at & self.opcode_mask) in self.opcodes
        )

    def read(self, data: bytes) -> Inst:
        inst = self.layout.from_bytes(data)
        layout = self.variants.get(self._variant(int.from_bytes(data[:8], "little"), inst))
        return layout.from_bytes(data) if layout is not None else inst

    def _variant(self, bits: int, inst: Inst) -> str:
        names = [getattr(inst, field).name for field in ("op", "opx", "opy") if hasattr(inst, field)]
        if any(LITERAL_OPCODE.search(name) for name in names):
            return "LIT"
        values = {bits >> at & mask for at, mask in self.sources}
        if LITERAL in values:
            return "LIT"
        if SDWA in values and "SDWA_SDST" in self.variants and names[0].startswith("V_CMP"):
            return "SDWA_SDST"
        if values.intersection(DPP8) and self.rdna:
            return "DPP8"
        return "SDWA" if SDWA in values else "DPP16" if DPP16 in values else ""


def family_of(arch: str) -> str:
    """The tables' name for gfx1100 and the like. Raises UnknownArch."""
    for start, family in FAMILIES.items():
        if arch == start or (arch.startswith(start) and len(start) == 5 and len(arch) == 7):
            return family
    raise UnknownArch(f"{arch}: no decoding tables; there are some for {', '.join(FAMILIES)}")


def decode(code: bytes, family: str) -> Iterator[Decoded]:
    """Every instruction of a code section, from its first byte on."""
    formats = _formats_by_byte(family)
    seen: dict[bytes, Inst] = {}
    pc = 0
    while pc < len(code):
        # Instructions repeat. How long one is can be told from its first words, so none is another's beginning.
        inst = next((seen[data] for n in (4, 8, 12, 16) if (data := code[pc : pc + n]) in seen), None)
        if inst is None:
            inst = _decode_one(code[pc : pc + LONGEST].ljust(LONGEST, b"\0"), formats)
            if inst is not None:
                seen[code[pc : pc + inst.size()]] = inst
        size = inst.size() if inst is not None else 4
        yield Decoded(pc=pc, size=size, inst=inst)
        pc += size


def _decode_one(data: bytes, formats: tuple[tuple[Format, ...], ...]) -> Inst | None:
    word = int.from_bytes(data[:4], "little")
    found = next((each for each in formats[data[3]] if each.fits(word)), None)
    return found.read(data) if found is not None else None


@functools.cache
def _formats_by_byte(family: str) -> tuple[tuple[Format, ...], ...]:
    """The formats that an instruction may have, by the highest byte of its first word, those with more fixed bits
    first: a short encoding is a hole in a longer one.
    """
    tables = {
        name: layout
        for name, layout in TABLES[family]().items()
        if isinstance(layout, type) and issubclass(layout, Inst) and layout is not Inst and not name.startswith(NOT_COMPUTE)
    }
    formats = [_format(name, tables, family) for name in tables if not VARIANT.search(name)]
    formats.sort(key=lambda each: (-each.mask.bit_count(), len(each.opcodes)))
    return tuple(
        tuple(each for each in formats if (byte << 24 ^ each.value) & each.mask >> 24 << 24 == 0) for byte in range(256)
    )


def _format(name: str, tables: Mapping[str, type[Inst]], family: str) -> Format:
    layout = tables[name]
    variants = {
        suffix: tables[f"{name}_{suffix}"] for suffix in ("LIT", "DPP8", "DPP16", "SDWA", "SDWA_SDST") if f"{name}_{suffix}" in tables
    }
    fixed = [field for _, field in layout._fields if isinstance(field, FixedBitField) and field.lo < 32]
    opcode = getattr(layout, "op", None)
    # What is only there with a literal is missing from the format itself.
    holders = [opcode, getattr(variants.get("LIT"), "op", None)]
    return Format(
        layout=layout,
        variants=variants,
        mask=sum(field.mask << field.lo for field in fixed),
        value=sum(field.default << field.lo for field in fixed),
        opcode_at=opcode.lo if opcode else 0,
        opcode_mask=opcode.mask if opcode else 0,
        opcodes=frozenset(
            each.value for holder in holders if isinstance(holder, EnumBitField) for each in holder.allowed or holder._enum
        ),
        sources=tuple(
            (field.lo, field.mask) for each, field in layout._fields if each in SOURCE_FIELDS and isinstance(field, SrcField)
        ),
        rdna=family.startswith("rdna"),
    )
