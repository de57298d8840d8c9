"""Compares rows of the machine with what LLVM's disassembler writes for the same bytes: a second reading of the code.

What is compared: the operation, every register and constant in its place, modifiers, offsets, widths of memory, waits,
DPP and SDWA. What is not: targets of branches, hints for caches, `s_setreg`, and what an operation does.
"""

import re
import struct
from collections.abc import Iterator, Sequence

from emulator.entry import (
    AGPR,
    CONSTANT,
    DPP_BOUND,
    DPP_FETCH_INACTIVE,
    HAS_VADDR,
    M0,
    NO_WAIT,
    NULL,
    RETURNS,
    TEMPORARY,
    TWO_ADDRESSES,
    VCC,
    VGPR,
    Entry,
)
from emulator.llvm import SUFFIX
from emulator.names import operation

OPERAND = re.compile(r"^(?P<neg>-?)(?P<abs>\|?)(?P<name>[a-z_]+\w*(?:\[\d+(?::\d+)?\])?(?:\.[lh])?)\|?$")
REGISTER = re.compile(r"^(?P<file>[vsa]|ttmp)(?:(?P<one>\d+)|\[(?P<first>\d+)(?::(?P<last>\d+))?\])(?P<half>\.[lh])?$")
CALL = re.compile(r"^(neg|abs|sext|lit)\((.*)\)$")
MODIFIER = re.compile(r"(\w+):(\[[^\]]*\]|\S+)|(\w+)")
SPECIAL = {
    "vcc": VCC,
    "vcc_lo": VCC,
    "vcc_hi": VCC + 1,
    "exec": 126,
    "exec_lo": 126,
    "exec_hi": 127,
    "m0": M0,
    "null": NULL,
    "off": NULL,
    "flat_scratch": 102,
    "flat_scratch_lo": 102,
    "flat_scratch_hi": 103,
    "src_shared_base": 235,
    "src_shared_limit": 236,
    "src_private_base": 237,
    "src_private_limit": 238,
    "src_vccz": 251,
    "src_execz": 252,
    "src_scc": 253,
}
FILES = {"v": VGPR, "s": 0, "a": AGPR, "ttmp": 108}
NO_OPERANDS = re.compile(
    r"^(S_(C?BRANCH|SETREG|GETREG|NOP|SLEEP|DELAY_ALU|CLAUSE|SENDMSG|CALL|WAIT_ALU|ENDPGM|BARRIER|CODE_END)|DS_NOP|V_NOP)"
)
CARRY = re.compile("_CO_|DIV_SCALE|MAD_CO")
EXEC = 126
EXCHANGES = ("DS_BPERMUTE", "DS_PERMUTE", "DS_SWIZZLE")
MEMORY = ("GLOBAL", "FLAT", "SCRATCH", "BUFFER", "DS")
COUNTERS = {
    "vmcnt": (0,),
    "loadcnt": (0,),
    "vscnt": (1,),
    "storecnt": (1,),
    "lgkmcnt": (2, 3),
    "dscnt": (2,),
    "kmcnt": (3,),
}
OMOD = {"mul:2": 1, "mul:4": 2, "div:2": 3}
SELECTS = ("BYTE_0", "BYTE_1", "BYTE_2", "BYTE_3", "WORD_0", "WORD_1", "DWORD")
UNUSED = ("UNUSED_PAD", "UNUSED_SEXT", "UNUSED_PRESERVE")
SDWA_FIELDS = (("dst_sel", SELECTS), ("src0_sel", SELECTS), ("src1_sel", SELECTS), ("dst_unused", UNUSED))
DPP_OF_A_LANE = {
    "row_shl": 0x100,
    "row_shr": 0x110,
    "row_ror": 0x120,
    "row_share": 0x150,
    "row_newbcast": 0x150,
    "row_xmask": 0x160,
}
DPP_OF_ALL = {
    "row_mirror": 0x140,
    "row_half_mirror": 0x141,
    "wave_shl": 0x130,
    "wave_rol": 0x134,
    "wave_shr": 0x138,
    "wave_ror": 0x13C,
}
ROW_BROADCASTS = {"15": 0x142, "31": 0x143}


class Operand:
    """One operand in LLVM's text: a register's number in the machine's scheme, or the bits a constant may have."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.neg = self.abs = self.sext = self.lit = self.is_half = self.is_high = False
        while match := CALL.match(text):
            setattr(self, match[1], True)
            text = match[2]
        if match := OPERAND.match(text):
            self.neg, self.abs = self.neg or match["neg"] == "-", self.abs or match["abs"] == "|"
            text = match["name"]
        self.number, self.n_registers, self.values = CONSTANT, 1, frozenset[int]()
        if text in SPECIAL:
            self.number = SPECIAL[text]
        elif match := REGISTER.match(text):
            first = int(match["one"] or match["first"])
            self.number = FILES[match["file"]] + first
            self.is_half, self.is_high = match["half"] is not None, match["half"] == ".h"
            self.n_registers = int(match["last"] or first) - first + 1
        else:
            self.values = frozenset(_constants(text))

    def is_source(self, entry: Entry, n: int) -> bool:
        if self.number != CONSTANT:
            return entry.sources[n] == self.number
        found = entry.constants[n]
        return entry.sources[n] == CONSTANT and bool(self.values & {found, found & 0xFFFFFFFF, found & 0xFFFF})


def _constants(text: str) -> Iterator[int]:
    """The bits that a constant may stand for: an operand's type is not in the text."""
    try:
        value = int(text, 0)
    except ValueError:
        number = float(text)
        for code in ("e", "f", "d"):
            yield int.from_bytes(struct.pack(f"<{code}", number), "little")
        yield int.from_bytes(struct.pack("<f", number)[2:], "little")
        return
    yield value & 0xFFFFFFFF
    yield value << 32  # the high half of an f64
    yield value & ((1 << 64) - 1)


def split(text: str) -> tuple[str, list[str], dict[str, str]]:
    """Mnemonic, operands, and modifiers by name."""
    mnemonic, _, rest = text.partition(" ")
    parts, depth, current = [], 0, ""
    for character in rest:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append(current.strip())
            current = ""
        else:
            current += character
    last, _, modifiers = current.strip().partition(" ")
    if last and ":" in last.partition("[")[0]:
        last, modifiers = "", current.strip()
    if last:
        parts.append(last)
    found = {match[1] or match[3]: match[2] or "" for match in MODIFIER.finditer(modifiers)}
    return mnemonic, parts, found


def disagreements(text: str, name: str, entries: Sequence[Entry]) -> Iterator[str]:
    """What LLVM's text says otherwise than the rows that were made of the instruction of this name."""
    if "::" in text:
        halves = [half.strip() for half in text.split("::")]
        kept = entries[0].sources[0] if len(entries) == 3 else NULL
        rows = entries[-2:]
        for half, row in zip(halves, rows, strict=True):
            mnemonic, operands, _ = split(half)
            if operation(mnemonic.upper()) != row.name:
                yield f"operation {row.name}"
            yield from _vector(row, [Operand(each) for each in operands], {}, kept)
        return
    (entry,) = entries
    mnemonic, operands, modifiers = split(text)
    if operation(SUFFIX.sub("", mnemonic).upper()) != operation(name):
        yield f"operation {name}"
    elif entry.name == "S_WAIT":
        yield from _wait(entry, mnemonic, text)
    elif entry.name.startswith("not in the emulator") or NO_OPERANDS.match(entry.name):
        return
    elif name.startswith(("S_LOAD", "S_BUFFER_LOAD")):
        yield from _scalar_memory(entry, [Operand(each) for each in operands], modifiers)
    elif name.startswith(MEMORY):
        yield from _memory(entry, [Operand(each) for each in operands], modifiers, name)
    else:
        found = [Operand(each) for each in operands]
        yield from _scalar(entry, found) if name.startswith("S_") else _vector(entry, found, modifiers)


def _wait(entry: Entry, mnemonic: str, text: str) -> Iterator[str]:
    """`s_waitcnt vmcnt(0) lgkmcnt(1)`, `s_waitcnt_vscnt null, 0x0`, `s_wait_loadcnt_dscnt 0x102`."""
    expected = [NO_WAIT] * 4
    if mnemonic == "s_waitcnt":
        counts = [(name, int(count)) for name, count in re.findall(r"(\w+)\((\d+)\)", text)]
    else:
        names = re.sub("^s_wait(cnt)?_", "", mnemonic).split("_")
        value = int(text.rsplit(maxsplit=1)[-1], 0)
        counts = [(name, value >> 8 * (len(names) - 1 - n) & 255) for n, name in enumerate(names)]
    for name, count in counts:
        for n in COUNTERS.get(name, ()):
            expected[n] = count
    if expected != entry.constants:
        yield f"waits {entry.constants}, not {expected}"


def _scalar(entry: Entry, operands: Sequence[Operand]) -> Iterator[str]:
    sources = list(operands)
    if entry.destination != NULL or (sources and sources[0].number == NULL and not entry.name.startswith("S_CMP")):
        if not sources or sources[0].number != entry.destination:
            yield f"destination {entry.destination}"
        sources = sources[1:]
    # Where the destination is a source too, it is not written twice.
    at = 1 if entry.sources[0] == entry.destination and len(sources) == 1 and entry.sources[1] == CONSTANT else 0
    for n, source in enumerate(sources):
        if not source.is_source(entry, n + at):
            yield f"source {n}: {entry.sources[n + at]} {entry.constants[n + at]:#x}, not {source.text}"


def _vector(entry: Entry, operands: Sequence[Operand], modifiers: dict[str, str], kept: int = NULL) -> Iterator[str]:
    """`kept` is the register that the first of a pair overwrites, and that the second reads from where it was kept."""
    wanted = _results(entry)
    for operand, number in zip(operands, wanted, strict=False):
        if operand.number != number:
            yield f"result {number}, not {operand.text}"
    sources = operands[len(wanted) :]
    has_signs = not {"neg_lo", "neg_hi"}.intersection(modifiers) and "MIX" not in entry.name
    for n, source in enumerate(sources):
        if not source.is_source(entry, n) and (source.number, entry.sources[n]) != (kept, TEMPORARY):
            yield f"source {n}: {entry.sources[n]} {entry.constants[n]:#x}, not {source.text}"
        signs = bool(entry.neg >> n & 1), bool(entry.abs >> n & 1)
        if source.number != CONSTANT and has_signs and (source.neg, source.abs) != signs:
            yield f"sign of source {n}"
        if source.is_half and "op_sel" not in modifiers and source.is_high != bool(entry.opsel >> n & 1):
            yield f"half of source {n}"
        if source.sext and not entry.extra >> n & 1:
            yield f"sign extension of source {n}"
    yield from _signs(entry, modifiers, len(sources))
    yield from _dpp_and_sdwa(entry, modifiers)


def _results(entry: Entry) -> list[int]:
    """The registers that LLVM writes before the sources. What RDNA compares into EXEC alone is not written."""
    if entry.name.startswith("V_CMPX") and entry.scalar_destination in {VCC, EXEC}:
        return [] if entry.destination in {NULL, EXEC} else [entry.scalar_destination]
    if entry.name.startswith("V_CMP"):
        return [entry.scalar_destination]
    with_carry = CARRY.search(entry.name) is not None or entry.scalar_destination != NULL
    return [entry.destination, *([entry.scalar_destination] if with_carry else [])]


def _bits(text: str) -> int:
    return sum(int(bit) << n for n, bit in enumerate(text.strip("[]").split(",")))


def _signs(entry: Entry, modifiers: dict[str, str], n_sources: int) -> Iterator[str]:
    if bool(entry.clamp) != ("clamp" in modifiers):
        yield "clamp"
    if entry.omod != next((OMOD[pair] for pair in map(":".join, modifiers.items()) if pair in OMOD), 0):
        yield "output modifier"
    for key, value in (("neg_lo", entry.neg), ("neg_hi", entry.neg_hi), ("op_sel_hi", entry.opsel_hi)):
        if key in modifiers and _bits(modifiers[key]) != value & ((1 << n_sources) - 1):
            yield f"{key} {value}"
    if "op_sel" in modifiers:
        bits = _bits(modifiers["op_sel"])
        if modifiers["op_sel"].count(",") == n_sources:
            # The last is the destination's.
            bits = bits & ~(1 << n_sources) | (bits >> n_sources & 1) << 3
        if bits != entry.opsel:
            yield f"op_sel {entry.opsel}"


def _dpp_and_sdwa(entry: Entry, modifiers: dict[str, str]) -> Iterator[str]:
    control = next(filter(None, (_dpp_control(*pair) for pair in modifiers.items())), None)
    if "dpp8" in modifiers:
        if (control, "fi" in modifiers) != (entry.extra, bool(entry.flags & DPP_FETCH_INACTIVE)):
            yield f"DPP8 {entry.extra:#x} {entry.flags}"
    elif control is not None:
        written = (
            control,
            int(modifiers["row_mask"], 0),
            int(modifiers["bank_mask"], 0),
            (DPP_BOUND if "bound_ctrl" in modifiers else 0) | (DPP_FETCH_INACTIVE if "fi" in modifiers else 0),
        )
        if written != (entry.dpp, *entry.select[:2], entry.flags):
            yield f"DPP {entry.dpp:#x} {entry.select} {entry.flags}"
    for (key, names), value in zip(SDWA_FIELDS, entry.select, strict=True):
        if key in modifiers and names.index(modifiers[key]) != value:
            yield f"{key} {value}"


def _dpp_control(key: str, value: str) -> int | None:
    if key in {"quad_perm", "dpp8"}:
        width = 2 if key == "quad_perm" else 3
        return sum(int(each) << width * n for n, each in enumerate(value.strip("[]").split(",")))
    if key in DPP_OF_A_LANE:
        return DPP_OF_A_LANE[key] + int(value)
    return ROW_BROADCASTS[value] if key == "row_bcast" else DPP_OF_ALL.get(key)


def _scalar_memory(entry: Entry, operands: Sequence[Operand], modifiers: dict[str, str]) -> Iterator[str]:
    destination, base, offset = operands
    if (destination.number, base.number) != (entry.destination, entry.sources[0]):
        yield f"operands {entry.destination}, {entry.sources[0]}"
    if destination.n_registers * 4 != max(4, entry.n_bytes):
        yield f"{entry.n_bytes} bytes"
    given = int(modifiers.get("offset", "0"), 0)
    register = offset.number
    if register == CONSTANT:
        given, register = int(offset.text, 0), NULL
    if (register, given) != (entry.sources[1], entry.offset):
        yield f"offset {entry.sources[1]} + {entry.offset}"


def _memory(entry: Entry, operands: Sequence[Operand], modifiers: dict[str, str], name: str) -> Iterator[str]:
    has_result = "LOAD" in entry.name or name.startswith(EXCHANGES) or bool(entry.flags & RETURNS)
    if not name.startswith("DS_SWIZZLE"):
        yield from _memory_offset(entry, modifiers, name)
    if entry.name.startswith("BUFFER"):
        address = NULL if operands[1].number == NULL else entry.sources[0]
        wanted = [entry.sources[1], address, entry.sources[2], entry.sources[3]]
    elif name.startswith("DS_"):
        wanted = _lds_operands(entry, name, has_result, len(operands))
    else:
        wanted = [entry.destination] if has_result else []
        wanted.append(entry.sources[0] if entry.flags & HAS_VADDR else NULL)
        wanted += [] if "LOAD" in entry.name else [entry.sources[1]]
        wanted += [] if name.startswith("FLAT") else [entry.sources[2]]
    if [each.number for each in operands] != wanted:
        yield f"operands {wanted}"
    if entry.n_bytes and not name.startswith("DS_"):
        yield from _memory_width(entry, operands, name, has_result)


def _memory_offset(entry: Entry, modifiers: dict[str, str], name: str) -> Iterator[str]:
    if entry.flags & TWO_ADDRESSES:
        unit = entry.n_bytes * (64 if re.search("ST64|STRIDE64", name) else 1)
        given = tuple(int(modifiers.get(key, "0"), 0) * unit for key in ("offset0", "offset1"))
        if given != (entry.offset, entry.extra):
            yield f"offsets {entry.offset}, {entry.extra}"
    elif int(modifiers.get("offset", "0"), 0) != entry.offset:
        yield f"offset {entry.offset}"


def _memory_width(entry: Entry, operands: Sequence[Operand], name: str, has_result: bool) -> Iterator[str]:
    data = operands[0] if has_result or entry.name.startswith("BUFFER") else operands[1]
    n_registers = max(1, entry.n_bytes // 4) * (2 if "CMPSWAP" in name and not has_result else 1)
    if data.n_registers != n_registers:
        yield f"{entry.n_bytes} bytes, {data.text}"


def _lds_operands(entry: Entry, name: str, has_result: bool, n: int) -> list[int]:
    if name.startswith("DS_SWIZZLE"):
        return [entry.destination, entry.sources[1]]
    data = [entry.sources[1], entry.sources[3]]
    if "CMPST_" in name:
        data.reverse()
    return [*([entry.destination] if has_result else []), entry.sources[0], *data][:n]
