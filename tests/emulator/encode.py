"""Vector and scalar instructions to rows of the machine: operands, constants, modifiers, DPP and SDWA."""

import re
import struct
from collections.abc import Callable
from typing import Any

from tinygrad.renderer.amd.dsl import Inst

from emulator.encode_memory import MEMORY_FORMATS, encode_memory
from emulator.entry import (
    AGPR,
    DPP8,
    DPP16,
    DPP_BOUND,
    DPP_FETCH_INACTIVE,
    NO_WAIT,
    NULL,
    SDWA,
    TEMPORARY,
    VCC,
    VGPR,
    Entry,
    scalar_register,
    unsupported,
)
from emulator.names import operation

FLOATS = {240: 0.5, 241: -0.5, 242: 1.0, 243: -1.0, 244: 2.0, 245: -2.0, 246: 4.0, 247: -4.0, 248: 0.15915494309189535}
LITERAL = 255
SOURCE_FIELDS = (("src0", "ssrc0", "vsrc0"), ("src1", "ssrc1", "vsrc1"), ("src2",))

WAIT_COUNTERS = ("LOADS", "STORES", "LDS_OPS", "SCALAR_LOADS")
RDNA4_WAITS = {
    "S_WAIT_LOADCNT": {"LOADS": (0, 6)},
    "S_WAIT_STORECNT": {"STORES": (0, 6)},
    "S_WAIT_DSCNT": {"LDS_OPS": (0, 6)},
    "S_WAIT_KMCNT": {"SCALAR_LOADS": (0, 5)},
    "S_WAIT_LOADCNT_DSCNT": {"LOADS": (8, 6), "LDS_OPS": (0, 6)},
    "S_WAIT_STORECNT_DSCNT": {"STORES": (8, 6), "LDS_OPS": (0, 6)},
}
"""Per wait instruction: the counters it names, and the first bit and the width of each count."""

MATRIX_TYPES = {"F16": 0, "BF16": 1, "IU8": 2, "I8": 2, "F32": 3}
NARROW_RESULT = 1 << 28


ADDEND_LITERAL = re.compile("(FMA|MAD)AK")
FACTOR_LITERAL = re.compile("(FMA|MAD)MK")


def encode(inst: Inst, family: str) -> list[Entry]:
    """The rows for one instruction: one, or for a dual-issue pair two or three."""
    entries = _dual(inst, family) if hasattr(inst, "opx") else [_single(inst, inst.op.name, family)]
    text = repr(inst)
    for entry in entries:
        entry.text = text
    return entries


def _single(inst: Inst, opcode: str, family: str) -> Entry:
    if "MFMA" in opcode or "WMMA" in opcode:
        return _matrix(inst, opcode, family)
    kind = type(inst).__name__
    encoder = next((found for prefixes, found in ENCODERS if kind.startswith(prefixes)), None)
    return encoder(inst, opcode, family) if encoder else unsupported(opcode)


def _program_control(inst: Inst, opcode: str, family: str) -> Entry:
    name = operation(opcode)
    immediate = inst.simm16 - (inst.simm16 >> 15 << 16)
    waits = _waits(inst, opcode, family)
    if waits is not None:
        return Entry(name="S_WAIT", constants=[waits.get(counter, NO_WAIT) for counter in WAIT_COUNTERS])
    entry = Entry(name=name, offset=immediate)
    if type(inst).__name__.startswith("SOPK") and name != "S_NOP":
        entry.destination = scalar_register(inst.sdst.offset, family)
        if "_U32" in opcode:
            immediate = inst.simm16
        # The destination is a source of those that add to it or compare it.
        old = name in {"S_ADD_I32", "S_MUL_I32"} or name.startswith("S_CMP_")
        if old:
            entry.sources[0] = entry.destination
        entry.set_constant(1 if old else 0, immediate)
    return entry


def _waits(inst: Inst, opcode: str, family: str) -> dict[str, int] | None:
    """How many operations of each counter a wait leaves outstanding; None if it is no wait."""
    if opcode in {"S_WAITCNT_VSCNT", "S_WAITCNT_VMCNT", "S_WAITCNT_LGKMCNT"}:
        counters = {"S_WAITCNT_VSCNT": ["STORES"], "S_WAITCNT_VMCNT": ["LOADS"]}
        return dict.fromkeys(counters.get(opcode, ["LDS_OPS", "SCALAR_LOADS"]), inst.simm16 & 63)
    if opcode == "S_WAITCNT" and family == "rdna3":
        loads, lds = inst.simm16 >> 10 & 63, inst.simm16 >> 4 & 63
        limits = 63, 63
    elif opcode == "S_WAITCNT":
        limits = 63, 63 if family == "rdna2" else 15
        loads, lds = inst.simm16 & 15 | inst.simm16 >> 14 << 4, inst.simm16 >> 8 & limits[1]
    elif opcode in RDNA4_WAITS:
        return {name: inst.simm16 >> low & ((1 << n) - 1) for name, (low, n) in RDNA4_WAITS[opcode].items()}
    else:
        return None
    waits = {} if loads == limits[0] else {"LOADS": loads}
    return waits if lds == limits[1] else {**waits, "LDS_OPS": lds, "SCALAR_LOADS": lds}


def constant_bits(number: int, literal: int, fmt: str, bits: int) -> int:
    """The bits of an inline constant, or of the literal, as an operand of `bits` bits in format `fmt`."""
    pair = fmt.startswith("FMT_NUM_PK2") and bits == 64
    if number == LITERAL:
        value = literal
        if bits == 64 and "F64" in fmt:
            value = literal << 32
        elif bits == 64 and "I64" in fmt:
            value = literal - (literal >> 31 << 32)
    elif number in FLOATS:
        value = _float_bits(FLOATS[number], fmt, 32 if pair else bits)
    else:
        value = number - 128 if number <= 192 else 192 - number
    return (value & 0xFFFFFFFF) << 32 | (value & 0xFFFFFFFF) if pair else value


def _float_bits(value: float, fmt: str, bits: int) -> int:
    if "BF16" in fmt:
        return int.from_bytes(struct.pack("<f", value)[2:], "little")
    code = "<d" if bits == 64 else "<e" if bits == 16 or "F16" in fmt else "<f"
    return int.from_bytes(struct.pack(code, value), "little")


def literal_of(inst: Inst) -> int:
    """The 32-bit constant that follows an instruction; 0 where there is none."""
    return int(getattr(inst, "literal", 0))


def set_source(entry: Entry, n: int, inst: Inst, field: str, family: str) -> None:
    """Make a field of the instruction source `n` of the row."""
    number = getattr(inst, field).offset
    if 128 <= number <= 208 or number in FLOATS or number == LITERAL:
        alternatives = next((names for names in SOURCE_FIELDS if field in names), (field,))
        fmt, bits = next(
            ((inst.operands[name][0].name, inst.op_bits[name]) for name in alternatives if name in inst.operands),
            ("", 32),
        )
        entry.set_constant(n, constant_bits(number, literal_of(inst), fmt, bits))
    else:
        entry.sources[n] = scalar_register(number, family)


def _scalar(inst: Inst, opcode: str, family: str) -> Entry:
    entry = Entry(name=operation(opcode))
    if hasattr(inst, "sdst"):
        entry.destination = scalar_register(inst.sdst.offset, family)
    set_source(entry, 0, inst, "ssrc0", family)
    if hasattr(inst, "ssrc1"):
        set_source(entry, 1, inst, "ssrc1", family)
    if opcode.startswith("S_BITSET"):
        entry.sources[1] = entry.destination
    if "FMAC" in opcode:
        entry.sources[2] = entry.destination
    if "FMAAK" in opcode:
        entry.set_constant(2, literal_of(inst))
    if "FMAMK" in opcode:
        entry.sources[2] = entry.sources[1]
        entry.set_constant(1, literal_of(inst))
    return entry


def _matrix(inst: Inst, opcode: str, family: str) -> Entry:
    parts = operation(opcode).split("_")
    size, element = parts[3], parts[4].removesuffix("1K")
    is_mfma = parts[1] == "MFMA"
    m, n, k = (int(part) for part in size.split("X"))
    plain = not (getattr(inst, "cbsz", 0) or getattr(inst, "abid", 0) or getattr(inst, "blgp", 0))
    if parts[1] not in {"MFMA", "WMMA"} or m != n or element not in MATRIX_TYPES or len(parts) > 6 or not plain:
        return unsupported(opcode)
    entry = Entry(name=f"V_{parts[1]}", destination=inst.vdst.offset)
    entry.extra = m | k << 8 | MATRIX_TYPES[element] << 24 | (NARROW_RESULT if parts[2] in {"F16", "BF16"} else 0)
    for number in range(3):
        set_source(entry, number, inst, f"src{number}", family)
    if is_mfma:
        for number in range(2):
            if inst.acc >> number & 1:
                entry.sources[number] += AGPR - VGPR
        if inst.acc_cd:
            entry.destination += AGPR - VGPR
            entry.sources[2] += AGPR - VGPR if entry.sources[2] >= VGPR else 0
    else:
        entry.neg, entry.neg_hi, entry.opsel = inst.neg, inst.neg_hi, inst.opsel
    return entry


def _vector(inst: Inst, opcode: str, family: str) -> Entry:
    name = operation(opcode)
    entry = Entry(name=name)
    kind = type(inst).__name__
    for n, names in enumerate(SOURCE_FIELDS):
        field = next((each for each in names if hasattr(inst, each)), None)
        if field is not None and (n < inst.num_srcs() or not kind.startswith("VOP3")):
            set_source(entry, n, inst, field, family)
    if hasattr(inst, "vdst"):
        entry.destination = scalar_register(inst.vdst.offset, family)
    if name in {"V_READLANE_B32", "V_READFIRSTLANE_B32"} and entry.destination >= VGPR:
        # A scalar register, though the tables have the field as a vector one.
        entry.destination -= VGPR
    _implied_operands(entry, inst, opcode, family)
    _modifiers(entry, inst, kind)
    if family in {"rdna3", "rdna4"} and kind.startswith(("VOP1", "VOP2", "VOPC")):
        _half_registers(entry, inst)
    if kind.endswith(("_DPP16", "_DPP8")):
        _dpp(entry, inst, kind)
    elif "_SDWA" in kind:
        _sdwa(entry, inst, family)
    return entry


def _implied_operands(entry: Entry, inst: Inst, opcode: str, family: str) -> None:
    """Operands that an encoding has no field for: VCC, the destination as an addend, a literal as a factor."""
    name = entry.name
    is_compare = name.startswith("V_CMP")
    if hasattr(inst, "sdst") and "SDWA" not in type(inst).__name__:
        entry.scalar_destination = scalar_register(inst.sdst.offset, family)
    elif is_compare:
        entry.scalar_destination = entry.destination if type(inst).__name__.startswith("VOP3") else VCC
    elif "_CO_" in name:
        entry.scalar_destination = VCC
    if type(inst).__name__.startswith(("VOP1", "VOP2")):
        if "_CO_CI_" in name or name.startswith("V_CNDMASK"):
            entry.sources[2] = VCC
        if ADDEND_LITERAL.search(opcode):
            entry.set_constant(2, literal_of(inst))
        if FACTOR_LITERAL.search(opcode):
            entry.sources[2] = entry.sources[1]
            entry.set_constant(1, literal_of(inst))
    if "FMAC" in opcode or opcode.startswith(("V_MAC_", "V_DOT2ACC", "V_DOT2C", "V_DOT4C", "V_DOT8C")):
        entry.sources[2] = entry.destination
    if opcode.startswith("V_PK_FMAC"):
        entry.opsel_hi = 7
    if opcode.startswith(("V_ACCVGPR_READ", "V_ACCVGPR_MOV")):
        entry.sources[0] += AGPR - VGPR if entry.sources[0] < AGPR else 0
    if opcode.startswith(("V_ACCVGPR_WRITE", "V_ACCVGPR_MOV")):
        entry.destination += AGPR - VGPR


def _modifiers(entry: Entry, inst: Inst, kind: str) -> None:
    for field, attribute in (
        ("neg", "neg"),
        ("abs", "abs"),
        ("neg_hi", "neg_hi"),
        ("clmp", "clamp"),
        ("omod", "omod"),
        ("opsel", "opsel"),
    ):
        if hasattr(inst, field):
            setattr(entry, attribute, getattr(inst, field))
    if hasattr(inst, "opsel_hi"):
        entry.opsel_hi = inst.opsel_hi | inst.opsel_hi2 << 2
    if entry.name.startswith("V_BITOP3"):
        # The truth table is spread over the modifier fields.
        entry.extra = inst.omod << 6 | inst.abs << 3 | inst.neg
        entry.omod = entry.abs = entry.neg = 0
    if kind.startswith("VOP3P") and entry.name.startswith("V_MOV"):
        entry.opsel = entry.opsel_hi = entry.neg = entry.neg_hi = 0


def _half_registers(entry: Entry, inst: Inst) -> None:
    """In the short encodings of RDNA 3 and 4, bit 7 of a register that holds 16 bits chooses its half."""
    for n, names in enumerate(SOURCE_FIELDS[:2]):
        bits = next((inst.op_bits[name] for name in names if name in inst.op_bits), 32)
        if bits == 16 and entry.sources[n] >= VGPR + 128:
            entry.sources[n] -= 128
            entry.opsel |= 1 << n
    if inst.op_bits.get("vdst", 32) == 16 and entry.destination >= VGPR + 128:
        high = entry.sources[2] == entry.destination
        entry.destination -= 128
        entry.opsel |= 8
        if high:
            entry.sources[2] -= 128
            entry.opsel |= 4


def _dpp(entry: Entry, inst: Inst, kind: str) -> None:
    entry.sources[0] = inst.vsrc0.offset
    if inst.op_bits.get("src0", inst.op_bits.get("vsrc0", 32)) == 64:
        entry.name = f"not in the emulator: {entry.name} with a 64-bit DPP operand"
    if (
        entry.sources[0] >= VGPR + 128
        and inst.op_bits.get("src0", inst.op_bits.get("vsrc0", 32)) == 16
        and not kind.startswith("VOP3")
    ):
        entry.sources[0] -= 128
        entry.opsel |= 1
    if kind.endswith("_DPP8"):
        entry.variant = DPP8
        entry.extra = sum(getattr(inst, f"lane_sel_{n}") << 3 * n for n in range(8))
        entry.flags = DPP_BOUND | (DPP_FETCH_INACTIVE if inst.src0.offset == 234 else 0)
        return
    entry.variant = DPP16
    entry.dpp = inst.dpp
    entry.select = (inst.row_mask, inst.bank_mask, 0, 0)
    entry.flags = (DPP_BOUND if inst.bc else 0) | (DPP_FETCH_INACTIVE if getattr(inst, "fi", 0) else 0)
    if not kind.startswith("VOP3"):
        entry.neg |= inst.src0_neg | inst.src1_neg << 1
        entry.abs |= inst.src0_abs | inst.src1_abs << 1


def _sdwa(entry: Entry, inst: Any, family: str) -> None:
    entry.variant = SDWA
    entry.sources[0] = scalar_register(inst.vsrc0.offset - (VGPR if inst.s0 else 0), family)
    if entry.sources[1] != NULL and inst.s1:
        entry.sources[1] -= VGPR
    if hasattr(inst, "sdst"):
        entry.scalar_destination = scalar_register(inst.sdst.offset, family) if inst.sd else VCC
    destination = (inst.dst_sel, inst.dst_unused) if hasattr(inst, "dst_sel") else (6, 0)
    entry.select = (destination[0], inst.src0_sel, inst.src1_sel, destination[1])
    entry.extra = inst.src0_sext | inst.src1_sext << 1
    entry.neg |= inst.src0_neg | inst.src1_neg << 1
    entry.abs |= inst.src0_abs | inst.src1_abs << 1


def _dual(inst: Any, family: str) -> list[Entry]:
    """Both halves of a pair read before either writes: what the first overwrites is kept aside for the second."""
    first = _half_of_dual(inst, inst.opx.name, inst.srcx0, inst.vsrcx1, inst.vdstx, family)
    second = _half_of_dual(inst, inst.opy.name, inst.srcy0, inst.vsrcy1, inst.vdsty, family)
    if first.destination not in second.sources:
        return [first, second]
    kept = Entry(name="V_MOV_B32", destination=TEMPORARY, sources=[first.destination, NULL, NULL, NULL])
    second.sources = [TEMPORARY if source == first.destination else source for source in second.sources]
    return [kept, first, second]


def _half_of_dual(inst: Any, opcode: str, source: Any, other: Any, destination: Any, family: str) -> Entry:
    entry = Entry(name=operation(opcode), destination=destination.offset)
    number = source.offset
    if 128 <= number <= 208 or number in FLOATS or number == LITERAL:
        entry.set_constant(0, constant_bits(number, literal_of(inst), "FMT_NUM_F32", 32))
    else:
        entry.sources[0] = scalar_register(number, family)
    if "V_DUAL_MOV" not in opcode:
        entry.sources[1] = other.offset
    if "FMAC" in opcode or "DOT2ACC" in opcode:
        entry.sources[2] = entry.destination
    if "FMAAK" in opcode:
        entry.set_constant(2, literal_of(inst))
    if "FMAMK" in opcode:
        entry.sources[2] = entry.sources[1]
        entry.set_constant(1, literal_of(inst))
    if "CNDMASK" in opcode:
        entry.sources[2] = VCC
    return entry


ENCODERS: tuple[tuple[tuple[str, ...], Callable[[Inst, str, str], Entry]], ...] = (
    (("SOPP", "SOPK"), _program_control),
    (("SOP1", "SOP2", "SOPC"), _scalar),
    (("VOP",), _vector),
    (MEMORY_FORMATS, encode_memory),
)
"""By the beginning of a format's name."""
