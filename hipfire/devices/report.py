"""What this machine's processor can do and which kernels fit it: `python -m hipfire.devices.report` prints it as JSON.

A program of its own, for `hipfire diag`: kernels that crash while they are loaded must not take it down with them.
"""

import json
import os
import platform
import re
import sys
from pathlib import Path

from hipfire.errors import DeviceError
from hipfire.kernels.select import ARCHITECTURE_NAMES, FOLDER, VARIANTS, machine_variants

# What makes a difference to the kernels we have, or to those that could be written, as /proc/cpuinfo spells it.
_FEATURES = (
    "sse4_2", "avx", "f16c", "fma", "avx2", "avx_vnni", "avx512f", "avx512bw", "avx512_vnni", "avx512_bf16",
    "amx_int8", "asimd", "asimdhp", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip


def report() -> dict[str, object]:
    """`kernels` is the library that the CPU device takes, None when there is none; `problem` then says why."""
    machine = platform.machine().lower()
    cpuinfo = _read("/proc/cpuinfo")
    variants, problem = _usable_variants()
    names = VARIANTS.get(ARCHITECTURE_NAMES.get(machine, machine), ())
    return {
        "processor": _model_name(cpuinfo) or machine,
        "architecture": machine,
        "threads": len(os.sched_getaffinity(0)),
        "features": [feature for feature in _FEATURES if feature in _flags(cpuinfo)],
        "kernels": variants[0] if variants else None,
        "variants": {
            name: "missing" if not _is_built(name) else "fits" if name in variants else "needs another processor"
            for name in names
        },
        "problem": problem,
    }


def _usable_variants() -> tuple[tuple[str, ...], str | None]:
    try:
        return tuple(name for name in machine_variants() if _is_built(name)), None
    except DeviceError as error:
        return (), str(error)


def _is_built(variant: str) -> bool:
    return (FOLDER / f"hipfire_cpu-{variant}.so").exists()


def _model_name(cpuinfo: str) -> str | None:
    match = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, flags=re.MULTILINE)
    return match[1] if match else None


def _flags(cpuinfo: str) -> set[str]:
    match = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", cpuinfo, flags=re.MULTILINE)
    return set(match[1].split()) if match else set()


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


if __name__ == "__main__":
    json.dump(report(), sys.stdout)
