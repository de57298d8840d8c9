"""Loads, stores and atomics of every encoding to rows of the machine.

A name says all but the operands: where (global, flat, scratch, buffer, LDS), what, how wide, and what becomes of the
rest of a register.
"""

import re
from typing import Any

from tinygrad.renderer.amd.dsl import Inst

from emulator.entry import (
    AGPR,
    D16,
    D16_HI,
    HAS_INDEX,
    HAS_SADDR,
    HAS_VADDR,
    NULL,
    RETURNS,
    SIGNED,
    TWO_ADDRESSES,
    VGPR,
    Entry,
    scalar_register,
    unsupported,
)
from emulator.names import operation

OLD_WORDS = {
    "UBYTE": "U8",
    "SBYTE": "I8",
    "USHORT": "U16",
    "SSHORT": "I16",
    "SHORT": "B16",
    "BYTE": "B8",
    "DWORD": "B32",
    "DWORDX2": "B64",
    "DWORDX3": "B96",
    "DWORDX4": "B128",
    "DWORDX8": "B256",
    "DWORDX16": "B512",
    "READ": "LOAD",
    "WRITE": "STORE",
    "READ2": "LOAD_2ADDR",
    "WRITE2": "STORE_2ADDR",
    "READ2ST64": "LOAD_2ADDR_STRIDE64",
    "WRITE2ST64": "STORE_2ADDR_STRIDE64",
    "WRXCHG": "SWAP",
    "STOREXCHG": "SWAP",
    "CMPST": "CMPSWAP",
    "CMPSTORE": "CMPSWAP",
}
"""GCN's words for RDNA's."""

ATOMICS = [
    "SWAP",
    "CMPSWAP",
    "ADD",
    "SUB",
    "MIN_I",
    "MIN_U",
    "MAX_I",
    "MAX_U",
    "AND",
    "OR",
    "XOR",
    "INC",
    "DEC",
    "ADD_F",
    "MIN_F",
    "MAX_F",
    "PK_ADD_F16",
    "PK_ADD_BF16",
]
"""In the order of the enumeration in memory.c."""

WIDTH = re.compile(r"_([UIB])(8|16|32|64|96|128|256|512)(?=_|$)")
ATOMIC = re.compile(
    r"^(PK_ADD|SWAP|CMPSWAP|ADD|SUB|[SU]?MIN|[SU]?MAX|AND|OR|XOR|INC|DEC)(?:_NUM)?(?:_([UIBF]|BF)(16|32|64))?(_X2)?$"
)
MEMORY_FORMATS = ("GLOBAL", "VGLOBAL", "FLAT", "VFLAT", "SCRATCH", "VSCRATCH", "DS", "SMEM", "MUBUF", "VBUFFER")
LDS_EXCHANGES = {"DS_SWIZZLE_B32", "DS_BPERMUTE_B32", "DS_PERMUTE_B32", "DS_NOP"}
NO_SADDR = {"cdna": 127}
"""What the field of the scalar address holds where there is none; elsewhere NULL."""

SPACES = ("GLOBAL", "FLAT", "SCRATCH", "BUFFER", "DS")


def encode_memory(inst: Inst, opcode: str, family: str) -> Entry:
    if operation(opcode) == "S_NOP":
        return Entry(name="S_NOP")
    space, _, rest = opcode.partition("_")
    words = "_".join(OLD_WORDS.get(word, word) for word in rest.split("_"))
    if space == "S":
        return _scalar_load(inst, opcode, words, family)
    if space not in SPACES or "LDS" in words or "ADDTID" in words or "FORMAT" in words or "_TR_" in words:
        return unsupported(opcode)
    if opcode in LDS_EXCHANGES:
        return _lds_exchange(inst, opcode)
    entry = Entry(name="")
    if words.startswith(("LOAD", "STORE")):
        _transfer(entry, space, words)
    elif not _atomic(entry, space, words):
        return unsupported(opcode)
    if space == "DS":
        _lds_operands(entry, inst, words, opcode)
    elif space == "BUFFER":
        _buffer_operands(entry, inst, family)
    else:
        _flat_operands(entry, inst, space, family)
    if entry.name.endswith("ATOMIC") and space != "DS" and _returns(inst):
        entry.flags |= RETURNS
    _accumulation_registers(entry, inst)
    return entry


def _transfer(entry: Entry, space: str, words: str) -> None:
    width = WIDTH.search(words)
    assert width is not None
    entry.name = f"{space}_{'LOAD' if words.startswith('LOAD') else 'STORE'}"
    entry.n_bytes = int(width[2]) // 8
    entry.flags |= SIGNED if width[1] == "I" else 0
    if "D16_HI" in words:
        entry.flags |= D16_HI
    elif "D16" in words:
        entry.flags |= D16


def _atomic(entry: Entry, space: str, words: str) -> bool:
    words = words.removeprefix("ATOMIC_")
    if "_RTN" in words:
        words = words.replace("_RTN", "")
        entry.flags |= RETURNS
    match = ATOMIC.match(words)
    if match is None:
        return False
    what, kind, bits = match[1], match[2] or "", int(match[3] or 32)
    if what in {"SMIN", "SMAX"}:
        what, kind = what[1:], "I"
    elif what in {"UMIN", "UMAX"}:
        what, kind = what[1:], "U"
    if what == "PK_ADD":
        what, bits = f"PK_ADD_{kind}16", 32
    elif what in {"MIN", "MAX"} or (what == "ADD" and kind == "F"):
        what = f"{what}_{kind}"
    if what not in ATOMICS:
        return False
    entry.name = f"{space}_ATOMIC"
    entry.n_bytes = 8 if bits == 64 or match[4] else 4
    entry.extra = ATOMICS.index(what)
    return True


def _returns(inst: Any) -> bool:
    """Whether an atomic gives back the old value: a bit with another name in each family."""
    if hasattr(inst, "th"):
        return bool(inst.th & 1)
    return bool(inst.glc if hasattr(inst, "glc") else inst.sc0)


def _signed(value: int, bits: int) -> int:
    return value - (value >> (bits - 1) << bits)


def _flat_operands(entry: Entry, inst: Any, space: str, family: str) -> None:
    address = inst.vaddr if hasattr(inst, "vaddr") else inst.addr
    data = inst.vsrc if hasattr(inst, "vsrc") else inst.data
    entry.offset = _flat_offset(inst, space, family)
    scalar = scalar_register(inst.saddr.offset, family)
    if scalar == NO_SADDR.get(family, NULL):
        scalar = NULL
    entry.sources = [address.offset, data.offset, scalar, NULL]
    entry.destination = inst.vdst.offset
    if scalar != NULL and space != "FLAT":
        entry.flags |= HAS_SADDR
    if space != "SCRATCH" or (inst.sve if hasattr(inst, "sve") else scalar == NULL):
        entry.flags |= HAS_VADDR


def _flat_offset(inst: Any, space: str, family: str) -> int:
    if hasattr(inst, "ioffset"):
        return _signed(inst.ioffset, 24)
    if family == "rdna2":
        return int(inst.offset & 0x7FF) if space == "FLAT" else _signed(inst.offset, 12)
    return int(inst.offset) if space == "FLAT" and family == "cdna" else _signed(inst.offset & 0x1FFF, 13)


def _buffer_operands(entry: Entry, inst: Any, family: str) -> None:
    resource = inst.rsrc if hasattr(inst, "rsrc") else inst.srsrc.offset
    entry.offset = _signed(inst.ioffset, 24) if hasattr(inst, "ioffset") else inst.offset
    entry.sources = [inst.vaddr.offset, inst.vdata.offset, resource, scalar_register(inst.soffset.offset, family)]
    if 128 <= inst.soffset.offset <= 192:
        entry.set_constant(3, inst.soffset.offset - 128)
    entry.destination = inst.vdata.offset
    entry.flags |= (HAS_VADDR if inst.offen else 0) | (HAS_INDEX if inst.idxen else 0)


def _lds_operands(entry: Entry, inst: Any, words: str, opcode: str) -> None:
    entry.sources = [inst.addr.offset, inst.data0.offset, NULL, inst.data1.offset]
    entry.destination = inst.vdst.offset
    if opcode.startswith("DS_CMPST_"):
        # The older instruction has what to compare with first.
        entry.sources[1], entry.sources[3] = entry.sources[3], entry.sources[1]
    if "2ADDR" in words:
        unit = entry.n_bytes * (64 if "STRIDE64" in words else 1)
        entry.offset, entry.extra = inst.offset0 * unit, inst.offset1 * unit
        entry.flags |= TWO_ADDRESSES
    else:
        entry.offset = inst.offset0 | inst.offset1 << 8


def _lds_exchange(inst: Any, opcode: str) -> Entry:
    if opcode == "DS_NOP":
        return Entry(name="S_NOP")
    offset = inst.offset0 | inst.offset1 << 8
    entry = Entry(name=opcode, destination=inst.vdst.offset, offset=offset, extra=offset)
    if opcode == "DS_SWIZZLE_B32":
        entry.sources[1] = inst.addr.offset
    else:
        entry.sources[:2] = [inst.addr.offset, inst.data0.offset]
    return entry


def _accumulation_registers(entry: Entry, inst: Any) -> None:
    if not getattr(inst, "acc", 0):
        return
    shift = AGPR - VGPR
    entry.destination += shift
    entry.sources[1] += shift
    if entry.name.startswith("DS"):
        entry.sources[3] += shift


def _scalar_load(inst: Any, opcode: str, words: str, family: str) -> Entry:
    if words in {"MEMTIME", "MEMREALTIME"}:
        return Entry(name="S_MEMTIME", destination=inst.sdata.offset)
    width = WIDTH.search(words)
    if width is None or not words.startswith(("LOAD", "BUFFER_LOAD")):
        return unsupported(opcode)
    entry = Entry(name="S_BUFFER_LOAD" if words.startswith("BUFFER") else "S_LOAD", n_bytes=int(width[2]) // 8)
    entry.flags = SIGNED if width[1] == "I" else 0
    entry.destination = inst.sdata.offset
    entry.sources[0] = inst.sbase.offset
    if hasattr(inst, "ioffset"):
        entry.offset, entry.sources[1] = _signed(inst.ioffset, 24), inst.soffset.offset
    elif family in {"rdna2", "rdna3"}:
        entry.offset, entry.sources[1] = _signed(inst.offset, 21), scalar_register(inst.soffset.offset, family)
    else:
        if inst.imm:
            entry.offset = _signed(inst.offset, 21)
        if inst.soffset_en:
            entry.sources[1] = inst.soffset.offset
        elif not inst.imm:
            entry.sources[1] = inst.offset & 127
    return entry
