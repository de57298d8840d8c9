"""`python -m emulator.translate CODE_OBJECT OUT`: a code object as the file that `machine/module.c` loads."""

import argparse
import struct
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import attrs

from emulator.code_object import CodeObject, CodeObjectError, Kernel, read_code_object
from emulator.decode import UnknownArch, decode, family_of
from emulator.encode import encode
from emulator.entry import Entry

HEADER = struct.Struct("<8s16s6I3Q")
MAGIC = b"EMULATE1"
RULES = {"gcn5": "cdna", "cdna2": "cdna", "cdna3": "cdna", "rdna2": "rdna2", "rdna3": "rdna3", "rdna4": "rdna4"}
"""By whose rules instructions of a family's tables are encoded."""

FAMILY_CODES = {"cdna": 0, "rdna2": 3, "rdna3": 3, "rdna4": 4}
"""And by whose the machine runs them; what RDNA 2 does otherwise than RDNA 3 is gone when rows are made."""

KERNEL = struct.Struct("<256s15I96I128I")
MAX_HIDDEN = 32
MAX_ARGUMENTS = 64
NOT_AN_INSTRUCTION = 0xFFFFFFFF

# Kinds of hidden arguments: an axis each for the first three rows, as in machine.h. All others are zero.
HIDDEN_KINDS = {
    f"hidden_{name}_{axis}": 3 * row + column
    for row, name in enumerate(("block_count", "group_size", "remainder"))
    for column, axis in enumerate("xyz")
} | {"hidden_grid_dims": 9, "hidden_dynamic_lds_size": 10}

SEPARATE_IDS = ("gfx906", "gfx908", "gfx10")
"""Architectures that hold a work item's x, y and z in three registers; the others pack them into one."""


class Strings:
    """Text in one block, every text once."""

    def __init__(self) -> None:
        self.block = bytearray()
        self.offsets: dict[str, int] = {}

    def add(self, text: str) -> int:
        if text not in self.offsets:
            self.offsets[text] = len(self.block)
            self.block += text.encode() + b"\0"
        return self.offsets[text]


def translate(data: bytes) -> bytes:
    """A translated code object. Raises CodeObjectError or UnknownArch."""
    code_object = read_code_object(data)
    placed, index = _place(code_object)
    strings = Strings()
    rows = b"".join(
        each.entry.pack(strings.add(each.entry.name), strings.add(each.entry.text), each.pc, each.target)
        for each in placed
    )
    kernels = b"".join(_kernel(kernel, index, code_object.arch) for kernel in code_object.kernels)
    header = HEADER.pack(
        MAGIC,
        code_object.arch.encode(),
        FAMILY_CODES[RULES[family_of(code_object.arch)]],
        len(placed),
        len(code_object.kernels),
        len(index),
        len(strings.block),
        len(code_object.relocations),
        len(code_object.image),
        code_object.code_offset,
        code_object.code_size,
    )
    relocations = b"".join(struct.pack("<2Q", *pair) for pair in code_object.relocations)
    positions = struct.pack(f"<{len(index)}I", *index)
    return b"".join((header, rows, positions, kernels, bytes(strings.block), code_object.image, relocations))


@attrs.define
class Placed:
    """A row, where its instruction is, and for a branch the index of the row that it goes to."""

    entry: Entry
    pc: int
    target: int | None = None


def _place(code_object: CodeObject) -> tuple[list[Placed], list[int]]:
    """All rows, and for every 4-byte word of the code the index of the row of the instruction that begins there."""
    family = family_of(code_object.arch)
    placed: list[Placed] = []
    index = [NOT_AN_INSTRUCTION] * (code_object.code_size // 4)
    encoded: dict[int, list[Entry]] = {}  # equal instructions are one object
    branches = []
    for found in decode(code_object.code, family):
        index[found.pc // 4] = len(placed)
        if found.inst is None:
            word = code_object.code[found.pc : found.pc + 4][::-1].hex()
            nothing = Entry(name="unknown", text=f"0x{word} (not an instruction of {code_object.arch})")
            placed.append(Placed(nothing, found.pc))
            continue
        rows = encoded.get(id(found.inst))
        if rows is None:
            rows = encoded[id(found.inst)] = encode(found.inst, RULES[family])
        if rows[0].name.startswith(("S_BRANCH", "S_CBRANCH", "S_CALL")):
            branches.append(len(placed))
        placed += [Placed(row, found.pc) for row in rows]
    end = len(placed)
    placed.append(Placed(Entry(name="unknown", text="(past the end of the code)"), code_object.code_size))
    for branch in branches:
        target = placed[branch].pc + 4 + 4 * placed[branch].entry.offset
        inside = 0 <= target < code_object.code_size and index[target // 4] != NOT_AN_INSTRUCTION
        placed[branch].target = index[target // 4] if inside else end
    return placed, index


def _kernel(kernel: Kernel, index: list[int], arch: str) -> bytes:
    hidden = [row for row in kernel.arguments if row.kind in HIDDEN_KINDS]
    given = [row for row in kernel.arguments if not row.hidden]
    if len(hidden) > MAX_HIDDEN or len(given) > MAX_ARGUMENTS:
        raise CodeObjectError(f"{kernel.name}: {len(given)} arguments; at most {MAX_ARGUMENTS} are handled")
    pairs = [number for row in given for number in (row.offset, row.size)]
    numbers = [number for row in hidden for number in (row.offset, row.size, HIDDEN_KINDS[row.kind])]
    # With preloaded arguments the first 256 bytes load them, for firmware that cannot preload.
    entry = kernel.entry + (256 if kernel.preload else 0)
    return KERNEL.pack(
        kernel.name.encode(),
        index[entry // 4],
        kernel.lanes,
        kernel.n_vgpr,
        kernel.n_sgpr,
        kernel.lds_bytes,
        kernel.scratch_bytes,
        kernel.argument_bytes,
        kernel.n_user_sgpr,
        kernel.properties,
        kernel.rsrc2,
        kernel.preload,
        not arch.startswith(SEPARATE_IDS),
        kernel.max_items,
        len(hidden),
        len(given),
        *numbers,
        *[0] * (3 * MAX_HIDDEN - len(numbers)),
        *pairs,
        *[0] * (2 * MAX_ARGUMENTS - len(pairs)),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m emulator.translate", description=__doc__)
    parser.add_argument("code_object", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    try:
        translated = translate(options.code_object.read_bytes())
    except (OSError, CodeObjectError, UnknownArch) as error:
        sys.stderr.write(f"emulator: {options.code_object}: {error}\n")
        return 1
    # Several processes may translate the same file: each writes its own, and the name appears complete.
    with tempfile.NamedTemporaryFile(dir=options.out.parent, delete=False) as partial:
        partial.write(translated)
    Path(partial.name).replace(options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
