"""Instructions that the linear kernels run, as benchmarks/gpu_instructions.py counted them, and their classes.

Knows no cards and no times.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path

import attrs

from hipfire.kernels.hsaco import code_objects

PATH = Path(__file__).parent / "instruction_counts.json"

VECTOR_CLASSES = ("multiply-add", "convert", "unpack", "integer", "slow", "other vector")
"""Of the vector ALU. `slow` takes four turns: 32-bit integer products, transcendental functions."""

_CLASSES = (
    # Hints to the issue logic, and waits: they take no unit's time.
    ("hint", r"s_(clause|delay_alu|nop|wait|sendmsg)"),
    ("scalar load", r"s_(load|buffer_load)"),
    ("scalar", r"s_"),
    ("memory", r"(global|flat|buffer|scratch)_"),
    ("lds", r"ds_"),
    ("slow", r"v_(mul_lo|mul_hi_[ui]32(_e\d+)?\b|mad_u64|mad_i64|mad_co_u64|exp|log|rcp|rsq|sqrt|sin|cos)"),
    ("convert", r"v_cvt_"),
    ("matrix", r"v_(wmma|mfma)_"),
    ("multiply-add", r"v_(pk_)?(fma|mac|mad_f|mad_mix|mul_f|add_f|sub_f|dot)"),
    ("unpack", r"v_(and|or|bfe|bfi|lshr|ashr|perm|xor|align|lshl_or)"),
    ("integer", r"v_(add|sub|lshl|mul_[ui]32|mad_|cmp|cndmask|min|max|mov|readfirstlane|mul_hi_[ui]32_[ui]24)"),
    ("other vector", r"v_"),
)
_ARITHMETIC = r"(FMA|MUL_F|ADD_F|SUB_F|DOT)"
_WIDTHS = {"ubyte": 1, "sbyte": 1, "u8": 1, "i8": 1, "ushort": 2, "sshort": 2, "short": 2, "u16": 2, "i16": 2}


class StaleCounts(Exception):
    """The counts are of other objects than those that are there."""


@attrs.frozen(kw_only=True)
class Counts:
    """Of a matrix of `n_weights` that `n_rows` rows of activations are multiplied with, `weights_nbytes` when packed.

    `classes`: instructions of all waves. `lane_nbytes`, `lds_nbytes`: bytes that a lane loads from memory, and that it
    moves to or from LDS, summed over the waves. `rounds`: how often a wave went to memory for weights, summed likewise.
    """

    n_weights: int
    n_rows: int
    weights_nbytes: int
    classes: Mapping[str, int]
    lane_nbytes: int
    lds_nbytes: int
    rounds: int

    @property
    def n_instructions(self) -> int:
        return sum(self.classes.values())

    @property
    def bytes_per_weight(self) -> float:
        return self.weights_nbytes / self.n_weights


def read_counts(arch: str, path: Path = PATH) -> dict[str, Counts]:
    """By kernel. KeyError where the architecture was not counted; StaleCounts."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["objects"][arch] != object_hashes(arch):
        raise StaleCounts(f"{path.name} is of another build: run benchmarks/gpu_instructions.py")
    return {kernel: Counts(**row) for kernel, row in document["counts"][arch].items()}


def object_hashes(arch: str) -> dict[str, str]:
    """Of the objects whose kernels are counted, by source."""
    objects = code_objects(arch)
    return {source: hashlib.sha256(objects[source]).hexdigest() for source in ("linear", "matrix")}


def instruction_class(instruction: str) -> str:
    """The class of an instruction, by its text as the emulator prints it. ValueError for one of no class."""
    if instruction.startswith("VOPD"):
        # A pair is one instruction; it is counted as the arithmetic in it, if there is any.
        return "multiply-add" if re.search(_ARITHMETIC, instruction) else "integer"
    for name, pattern in _CLASSES:
        if re.match(pattern, instruction):
            return name
    raise ValueError(f"no class for the instruction {instruction}")


def load_nbytes(instruction: str) -> int:
    """Bytes that a lane loads from memory by an instruction; 0 for all that is no vector load."""
    match = re.match(r"(?:global|flat|buffer)_load_(?:d16_)?(?:hi_)?(\w+)", instruction)
    if match is None:
        return 0
    width = match[1].removesuffix("_d16").removesuffix("_d16_hi")
    if width in _WIDTHS:
        return _WIDTHS[width]
    if width.startswith("dword"):
        return 4 * int(width.removeprefix("dword").removeprefix("x") or 1)
    return int(width.removeprefix("b")) // 8


def lds_nbytes(instruction: str) -> int:
    """Bytes that a lane moves to or from LDS by an instruction; 0 for all others."""
    match = re.match(r"ds_(?:load|store|read|write)(_?2(?:addr|st64)?)?(?:_\w+?)??_b(\d+)", instruction)
    if match is None:
        return 0
    return int(match.group(2)) // 8 * (2 if match.group(1) else 1)
