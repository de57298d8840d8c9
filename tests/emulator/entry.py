"""The row that stands for one instruction in a translated code object: `Insn` in `machine/machine.h` is its twin."""

import struct

import attrs

from emulator.names import operation

ENTRY = struct.Struct("<Q4QIIiI6H5B2B3B4BHIQQ")

NULL = 124
M0 = 125
M0_BEFORE_RDNA3, NULL_OF_RDNA2 = 124, 125
VCC = 106
CONSTANT = 255
VGPR = 256
AGPR = 512
TEMPORARY = 768 + 7

SIGNED, D16, D16_HI, HAS_VADDR, HAS_SADDR, RETURNS, HAS_INDEX, TWO_ADDRESSES = (1 << n for n in range(8))
DPP_BOUND, DPP_FETCH_INACTIVE = 1, 2
PLAIN, DPP16, DPP8, SDWA = range(4)

NO_WAIT = (1 << 64) - 1


@attrs.define(kw_only=True)
class Entry:
    """Filled in step by step; see `Insn` for what each field means. Equal instructions share one."""

    name: str
    text: str = ""
    constants: list[int] = attrs.field(factory=lambda: [0, 0, 0, 0])
    offset: int = 0
    extra: int = 0
    destination: int = NULL
    scalar_destination: int = NULL
    sources: list[int] = attrs.field(factory=lambda: [NULL] * 4)
    neg: int = 0
    abs: int = 0
    neg_hi: int = 0
    opsel: int = 0
    opsel_hi: int = 0
    clamp: int = 0
    omod: int = 0
    n_bytes: int = 0
    flags: int = 0
    variant: int = PLAIN
    select: tuple[int, int, int, int] = (0, 0, 0, 0)
    dpp: int = 0

    def pack(self, name_at: int, text_at: int, pc: int, target: int | None) -> bytes:
        """The row of an instruction at a place in the code; a branch has the row of its target for an offset."""
        return ENTRY.pack(
            name_at,
            *self.constants,
            pc,
            text_at,
            self.offset if target is None else target,
            self.extra,
            self.destination,
            self.scalar_destination,
            *self.sources,
            self.neg,
            self.abs,
            self.neg_hi,
            self.opsel,
            self.opsel_hi,
            self.clamp,
            self.omod,
            self.n_bytes,
            self.flags,
            self.variant,
            *self.select,
            self.dpp,
            0,
            0,
            0,
        )

    def set_constant(self, n: int, value: int) -> None:
        self.sources[n] = CONSTANT
        self.constants[n] = value & ((1 << 64) - 1)


def scalar_register(number: int, family: str) -> int:
    """Register numbers of all families in one scheme: before RDNA 3, M0 was where NULL is now."""
    if family == "cdna" and number == M0_BEFORE_RDNA3:
        return M0
    if family == "rdna2" and number in {M0_BEFORE_RDNA3, NULL_OF_RDNA2}:
        return M0 if number == M0_BEFORE_RDNA3 else NULL
    return number


def unsupported(name: str) -> Entry:
    """An instruction that the machine has not: it faults when it is run, not before."""
    return Entry(name=f"not in the emulator: {operation(name)}")
