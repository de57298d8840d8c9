"""What LLVM says of AMD's machine code: which opcode is which, and how a code object reads.

- `python -m emulator.llvm opcodes > tests/emulator/rdna2.tsv`: for each opcode of each format it disassembles
  instructions whose other fields are registers that any operand may be.
- `python -m emulator.llvm samples FOLDER OBJECT...`: of code objects, a few of each kind of instruction, in a file for
  each architecture. The tests compare them with what this package reads (`llvm_text`).

Needs LLVM 19 or later, as Debian's llvm-22. Knows nothing of the wheel's tables.
"""

import itertools
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from emulator.code_object import read_code_object

VERSIONS = range(30, 18, -1)
"""Of LLVM. Older ones do not know the youngest architectures."""

ENCODING = re.compile(r"^\s*(\S+).*(?:;|//) encoding: \[([0-9a-fx,]+)\]$")
INSTRUCTION = re.compile(r"^\t(.*?)\s*// [0-9A-F]+: ([0-9A-F ]*[0-9A-F])")
KIND = re.compile(r"[vsa]\[?[\d:]+\]?|0x[0-9a-f]+|\d+|<.*>")
SAMPLES_OF_A_KIND = 2
SUFFIX = re.compile(r"_(e32|e64|sdwa|dpp)$")


@attrs.frozen
class Layout:
    """Where a format of RDNA 1 and 2 has its opcode, how many there may be, and samples of what else it holds."""

    name: str
    nbytes: int
    encoding: int
    at: int
    n: int
    samples: Sequence[int]


def _combinations(*fields: int) -> list[int]:
    """Every sum of some of the fields: an instruction that lacks a field wants zeros there."""
    return [sum(chosen) for n in range(len(fields) + 1) for chosen in itertools.combinations(fields, n)]


NO_SADDR, SOURCES = 125 << 48, [256, 256 << 9, 256 << 18]
FLAT = _combinations(2 << 32, 4 << 40, 8 << 56)
VOP3P = 2 | 0x104 << 32 | 0x104 << 41 | 3 << 59 | 1 << 14
VOP3 = [0x104 << 32 | rest for rest in _combinations(2, 2 << 8, *(source << 32 for source in SOURCES[1:]))]
LITERAL = 0x11223344 << 32

RDNA2 = (
    Layout("SOP2", 4, 0b10 << 30, 23, 96, [2 | 4 << 8 | 6 << 16]),
    Layout("SOP1", 4, 0b101111101 << 23, 8, 256, _combinations(2, 4 << 16)),
    Layout("SOPC", 4, 0b101111110 << 23, 16, 128, [2 | 4 << 8]),
    Layout("SOPK", 4, 0b1011 << 28, 23, 30, [2 << 16, 125 << 16, 2 << 16 | LITERAL]),
    Layout("SOPP", 4, 0b101111111 << 23, 16, 128, [0]),
    Layout("SMEM", 8, 0b111101 << 26, 18, 256, [*_combinations(8 << 6, 125 << 57), 125 << 57 | 8 << 6 | 2]),
    Layout("VOP1", 4, 0b111111 << 25, 9, 256, _combinations(256, 4 << 17)),
    Layout("VOP2", 4, 0, 25, 62, [256 | 2 << 9 | 4 << 17, 256 | 2 << 9 | 4 << 17 | LITERAL]),
    Layout("VOPC", 4, 0b111110 << 25, 17, 256, [256 | 2 << 9]),
    Layout("VOP3", 8, 0b110101 << 26, 16, 1024, [*VOP3, *(sample ^ 256 << 41 ^ 2 << 41 for sample in VOP3)]),
    Layout("VOP3P", 8, 0b110011000 << 23, 16, 128, [VOP3P, VOP3P | 0x104 << 50]),
    Layout("DS", 8, 0b110110 << 26, 18, 256, _combinations(2 << 32, 4 << 40, 6 << 48, 8 << 56)),
    Layout("FLAT", 8, 0b110111 << 26, 18, 128, [NO_SADDR | rest for rest in FLAT]),
    Layout("GLOBAL", 8, 0b110111 << 26 | 2 << 14, 18, 128, [NO_SADDR | rest for rest in FLAT]),
    Layout("SCRATCH", 8, 0b110111 << 26 | 1 << 14, 18, 128, [NO_SADDR | rest for rest in FLAT]),
    Layout("MUBUF", 8, 0b111000 << 26, 18, 256, [0, 2 << 32 | 4 << 40 | 1 << 48 | 128 << 56]),
)  # fmt: skip


class NoLlvm(Exception):
    """No LLVM that is new enough is installed."""


def tool(name: str) -> str:
    """The newest of LLVM's programs of this name, as Debian calls them. Raises NoLlvm."""
    found = next((path for version in VERSIONS if (path := shutil.which(f"{name}-{version}"))), None)
    if found is None:
        raise NoLlvm(f"{name} of LLVM {VERSIONS[-1]} or later is not installed (apt-get install llvm-22)")
    return found


def opcodes(program: str, arch: str, layouts: Sequence[Layout]) -> Iterator[tuple[str, int, str]]:
    """Format, opcode and name of every instruction that LLVM knows, without those that VOP3 repeats."""
    known: dict[str, set[int]] = {}
    for layout in layouts:
        instructions = {
            (layout.encoding | opcode << layout.at | sample).to_bytes(16, "little"): opcode
            for opcode in range(layout.n)
            for sample in layout.samples
        }
        names: dict[int, str] = {}
        for data, name in _disassemble(program, arch, [key[: layout.nbytes + 4] for key in instructions]).items():
            opcode = instructions.get(data.ljust(16, b"\0"))
            if opcode is not None and len(data) >= layout.nbytes:
                names.setdefault(opcode, SUFFIX.sub("", name).upper())
        known[layout.name] = set(names)
        repeated = set()
        if layout.name == "VOP3":
            repeated = known["VOPC"] | {n + 0x100 for n in known["VOP2"]} | {n + 0x180 for n in known["VOP1"]}
        for opcode in sorted(names.keys() - repeated):
            yield layout.name, opcode, names[opcode]


def _disassemble(program: str, arch: str, instructions: Sequence[bytes]) -> dict[bytes, str]:
    """The names of those that are instructions."""
    command = [program, "--disassemble", "-triple=amdgcn", f"-mcpu={arch}", "-show-encoding"]
    # Each begins a line: what follows the first instruction there is noise, and has another encoding.
    text = "\n".join(" ".join(f"0x{byte:02x}" for byte in data) for data in instructions)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        match = ENCODING.match(line)
        if match:
            found[bytes(int(byte, 16) for byte in match[2].split(","))] = match[1]
    return found


def rdna2_rows(program: str) -> list[tuple[str, int, str]]:
    """Of RDNA 2, and of RDNA 1 where the later has nothing; without the few that they have for different things."""
    later = {row[:2]: row for row in opcodes(program, "gfx1030", RDNA2)}
    earlier = {row[:2]: row for row in opcodes(program, "gfx1010", RDNA2)}
    conflicts = {key for key in later.keys() & earlier.keys() if later[key] != earlier[key]}
    return [row for key, row in sorted((earlier | later).items()) if key not in conflicts]


def disassembly(program: str, code_object: Path) -> Iterator[tuple[bytes, str]]:
    """Every instruction of a code object: its bytes and LLVM's text."""
    done = subprocess.run([program, "-d", str(code_object)], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines():
        match = INSTRUCTION.match(line)
        if match:
            words = [int(word, 16).to_bytes(4, "little") for word in match[2].split()]
            yield b"".join(words), match[1].strip()


def samples(program: str, code_objects: Sequence[Path]) -> Iterator[tuple[bytes, str]]:
    """The first few of each kind of instruction: of a name, a length, and what is written besides the operands."""
    seen: dict[tuple[str, int, str], set[bytes]] = {}
    for code_object in code_objects:
        for data, text in disassembly(program, code_object):
            kind = seen.setdefault((text.split()[0], len(data), KIND.sub("", text)), set())
            if len(kind) < SAMPLES_OF_A_KIND and data not in kind:
                kind.add(data)
                yield data, text


def main(arguments: Sequence[str]) -> None:
    what, *rest = arguments
    if what == "opcodes":
        for row in rdna2_rows(tool("llvm-mc")):
            sys.stdout.write("\t".join(map(str, row)) + "\n")
        return
    by_arch: dict[str, list[Path]] = {}
    for path in map(Path, rest[1:]):
        by_arch.setdefault(read_code_object(path.read_bytes()).arch, []).append(path)
    for arch, paths in by_arch.items():
        lines = sorted(f"{data.hex()} {text}\n" for data, text in samples(tool("llvm-objdump"), paths))
        (Path(rest[0]) / f"{arch}.txt").write_text("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1:])
