"""Machine code to instructions, by the tables in the tinygrad wheel and those that `older` makes of them.

The wheel's classes say which bits of a format are what; which format a word has, and which variant of it (a literal,
DPP, SDWA), is found here. Knows nothing of what an instruction does.
"""

import functools
import re
from collections.abc import Callable, Iterator, Mapping

import attrs
from tinygrad.renderer.amd.dsl import FixedBitField, Inst, SrcField
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

VARIANTS = ("", "_LIT", "_DPP8", "_DPP16", "_SDWA", "_SDWA_SDST")
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


class Cached:
    """An instruction that finds out once how wide its operands are: every operand that is read asks for it."""

    op_bits: dict[str, int]

    @functools.cached_property
    def op_regs(self) -> dict[str, int]:
        return {name: max(1, bits // 32) for name, bits in self.op_bits.items()}


@attrs.frozen
class Format:
    """A format, its variants by suffix ("" for none), and what the first word of its instructions looks like."""

    layouts: Mapping[str, type[Inst]]
    mask: int
    value: int
    opcodes: "Opcodes"
    literal_fields: tuple["Opcodes", ...]
    sources: tuple[tuple[int, int], ...]
    rdna: bool

    def fits(self, word: int) -> bool:
        return word & self.mask == self.value and self.opcodes.name_in(word) is not None

    def read(self, data: bytes) -> Inst:
        suffix = self._variant(int.from_bytes(data[:8], "little"))
        return self.layouts[suffix if suffix in self.layouts else ""].from_bytes(data)

    def _variant(self, bits: int) -> str:
        values = {bits >> at & mask for at, mask in self.sources}
        names = [name for field in self.literal_fields if (name := field.name_in(bits)) is not None]
        if LITERAL in values or any(LITERAL_OPCODE.search(name) for name in names):
            return "LIT"
        if SDWA in values:
            return "SDWA_SDST" if "SDWA_SDST" in self.layouts and "V_CMP" in names[0] else "SDWA"
        if self.rdna and values.intersection(DPP8):
            return "DPP8"
        return "DPP16" if DPP16 in values else ""


@attrs.frozen
class Opcodes:
    """A field that holds an opcode, and the names of those that it may hold."""

    at: int
    mask: int
    names: Mapping[int, str]

    def name_in(self, bits: int) -> str | None:
        return self.names.get(bits >> self.at & self.mask)


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
    """The formats that an instruction may have, by the highest byte of its first word. Those with more fixed bits
    come first, for a short encoding is a hole in a longer one; then those of fewer opcodes.
    """
    tables = {
        name: type(name, (Cached, layout), {"__module__": layout.__module__})
        for name, layout in TABLES[family]().items()
        if isinstance(layout, type) and issubclass(layout, Inst) and layout is not Inst
    }
    compute = [name for name in tables if not VARIANT.search(name) and not name.startswith(NOT_COMPUTE)]
    formats = [_format(name, tables, family) for name in compute]
    formats.sort(key=lambda each: (-each.mask.bit_count(), len(each.opcodes.names)))
    return tuple(
        tuple(each for each in formats if (byte << 24 ^ each.value) & each.mask >> 24 << 24 == 0) for byte in range(256)
    )


def _format(name: str, tables: Mapping[str, type[Inst]], family: str) -> Format:
    layouts = {suffix: tables[f"{name}{suffix}"] for suffix in VARIANTS if f"{name}{suffix}" in tables}
    layout = layouts[""]
    fixed = [field for _, field in layout._fields if isinstance(field, FixedBitField) and field.lo < 32]
    # An opcode that needs a literal is only in the variant that has one.
    with_literal = layouts.get("_LIT", layout)
    fields = [_opcodes(with_literal, field) for field in ("op", "opx", "opy") if hasattr(layout, field)]
    return Format(
        layouts={suffix.removeprefix("_"): each for suffix, each in layouts.items()},
        mask=sum(field.mask << field.lo for field in fixed),
        value=sum(field.default << field.lo for field in fixed),
        opcodes=fields[0],
        literal_fields=tuple(fields),
        sources=tuple(
            (field.lo, field.mask)
            for each, field in layout._fields
            if each in SOURCE_FIELDS and isinstance(field, SrcField)
        ),
        rdna=family.startswith("rdna"),
    )


def _opcodes(layout: type[Inst], field: str) -> Opcodes:
    holder = getattr(layout, field)
    # Of all its values, where the wheel does not name those of this format.
    return Opcodes(holder.lo, holder.mask, {each.value: each.name for each in holder.allowed or holder._enum})  # noqa: SLF001
