"""Machine code to instructions, by the tables in the tinygrad wheel.

What is added here: the formats that its detector leaves out (buffer instructions on RDNA, DPP8), and padding. Knows
nothing of what an instruction does.
"""

from collections.abc import Iterator

import attrs
from tinygrad.renderer.amd import decode_inst
from tinygrad.renderer.amd.dsl import Inst
from tinygrad.runtime.autogen.amd.rdna3 import ins as rdna3
from tinygrad.runtime.autogen.amd.rdna4 import ins as rdna4

FAMILIES = {"gfx9": "cdna", "gfx11": "rdna3", "gfx12": "rdna4"}
"""Decoding tables by the beginning of an architecture's name. gfx906 uses CDNA's, which are a superset of its own."""

BUFFERS = {"rdna3": (0b111000, rdna3.MUBUF), "rdna4": (0b110001, rdna4.VBUFFER)}
"""The top six bits of a buffer instruction, and its format."""

DPP8 = (233, 234)
"""Values of source 0 that announce a DPP8 word; the second lets inactive lanes be read."""

LONGEST = 16


class UnknownArch(Exception):
    """There are no decoding tables for an architecture."""


@attrs.frozen(kw_only=True)
class Decoded:
    """An instruction at byte offset `pc` of the code. `inst` is None for a word that no format fits."""

    pc: int
    size: int
    inst: Inst | None


def family_of(arch: str) -> str:
    """The tables' name for gfx1100 and the like. Raises UnknownArch for RDNA 1 and 2, which have none."""
    for start, family in FAMILIES.items():
        if arch.startswith(start) and len(arch) == (6 if start == "gfx9" else 7):
            return family
    raise UnknownArch(f"{arch}: no decoding tables; there are some for {', '.join(f'{name}…' for name in FAMILIES)}")


def decode(code: bytes, family: str) -> Iterator[Decoded]:
    """Every instruction of a code section, from its first byte on."""
    pc = 0
    seen: dict[bytes, Inst | None] = {}
    while pc < len(code):
        data = code[pc : pc + LONGEST].ljust(LONGEST, b"\0")
        # Instructions repeat, and a decoder that tries format after format is slow.
        if data not in seen:
            seen[data] = _decode_one(data, family)
        inst = seen[data]
        size = inst.size() if inst is not None else 4
        yield Decoded(pc=pc, size=size, inst=inst)
        pc += size


def _decode_one(data: bytes, family: str) -> Inst | None:
    if family in BUFFERS and data[3] >> 2 == BUFFERS[family][0]:
        return BUFFERS[family][1].from_bytes(data)
    try:
        inst = decode_inst(data, family)
        source = getattr(inst, "src0", None)
        if source is not None and source.offset in DPP8 and family != "cdna":
            module = {"rdna3": rdna3, "rdna4": rdna4}[family]
            inst = getattr(module, f"{type(inst).__name__}_DPP8").from_bytes(data)
        getattr(inst, "op", None)
    except ValueError:
        return None
    return inst
