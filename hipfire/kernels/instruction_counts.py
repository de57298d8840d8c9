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
    """Of a matrix of `n_weights` that one row of activations is multiplied with, `weights_nbytes` when packed.

    `classes`: instructions of all waves. `lane_nbytes`: bytes that a lane loads, summed over the waves. `rounds`: how
    often a wave went to memory for weights, summed over the waves.
    """

    n_weights: int
    weights_nbytes: int
    classes: Mapping[str, int]
    lane_nbytes: int
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
    if document["objects"][arch] != hashlib.sha256(code_objects(arch)["linear"]).hexdigest():
        raise StaleCounts(f"{path.name} is of another build: run benchmarks/gpu_instructions.py")
    n_out, n_in = document["matrix"]
    return {kernel: Counts(n_weights=n_out * n_in, **row) for kernel, row in document["counts"][arch].items()}


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
