"""Reads an AMD GPU code object (HSACO): an ELF file with kernels, their descriptors and their metadata.

Layout: the LLVM AMDGPU backend's user guide, "Code Object" and "Kernel Descriptor" (code object version 3 and later).
Knows nothing of instructions.
"""

import io
import struct
from typing import Any

import attrs
import msgpack
from elftools.elf.elffile import ELFFile

DESCRIPTOR = struct.Struct("<III4xq20xIIIHH4x")
RELATIVE64 = 13
ABSOLUTE64 = 3


class CodeObjectError(Exception):
    """The bytes are not a code object that this package can read; the message says why."""


@attrs.frozen(kw_only=True)
class Argument:
    """One kernel argument: where it lies in the argument segment, in bytes. Hidden ones are filled by the runtime."""

    name: str
    offset: int
    size: int
    kind: str

    @property
    def hidden(self) -> bool:
        return self.kind.startswith("hidden_")


@attrs.frozen(kw_only=True)
class Kernel:
    """A kernel's metadata and descriptor. Sizes are in bytes, `entry` is an offset into the code section."""

    name: str
    entry: int
    lanes: int
    n_vgpr: int
    n_sgpr: int
    n_spills: int
    max_items: int
    lds_bytes: int
    scratch_bytes: int
    argument_bytes: int
    arguments: tuple[Argument, ...]
    rsrc2: int
    properties: int
    preload: int

    @property
    def n_user_sgpr(self) -> int:
        return self.rsrc2 >> 1 & 31


@attrs.frozen(kw_only=True)
class CodeObject:
    """`image` is the file's segments as they lie in memory; `code` is a part of it. `relocations` are (where in the
    image, value) pairs: the 8 bytes there are to hold the image's address plus the value.
    """

    arch: str
    kernels: tuple[Kernel, ...]
    image: bytes
    code_offset: int
    code_size: int
    relocations: tuple[tuple[int, int], ...]

    @property
    def code(self) -> bytes:
        return self.image[self.code_offset : self.code_offset + self.code_size]


def read_code_object(data: bytes) -> CodeObject:
    """Read an HSACO file. Raises CodeObjectError where it is none."""
    if data[:4] != b"\x7fELF":
        raise CodeObjectError(f"not an ELF file: it begins with {data[:4]!r}")
    elf = ELFFile(io.BytesIO(data))
    text = elf.get_section_by_name(".text")
    metadata = _metadata(elf)
    if text is None:
        raise CodeObjectError("no .text section")
    image = _image(elf)
    symbols = {symbol.name: symbol["st_value"] for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
    code_offset = text["sh_addr"]
    kernels = tuple(_kernel(row, symbols, image, code_offset) for row in metadata["amdhsa.kernels"])
    return CodeObject(
        arch=metadata["amdhsa.target"].rpartition("--")[2].partition(":")[0],
        kernels=kernels,
        image=image,
        code_offset=code_offset,
        code_size=text["sh_size"],
        relocations=tuple(_relocations(elf)),
    )


def _metadata(elf: Any) -> dict[str, Any]:
    for section in elf.iter_sections("SHT_NOTE"):
        for note in section.iter_notes():
            if note["n_name"] == "AMDGPU":
                content = note["n_desc"]
                metadata = msgpack.unpackb(content.encode("latin-1") if isinstance(content, str) else content)
                if "amdhsa.kernels" in metadata and "amdhsa.target" in metadata:
                    return metadata
    raise CodeObjectError("no AMDGPU metadata note with kernels: not a linked HSA code object of version 3 or later")


def _image(elf: Any) -> bytes:
    loaded = [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]
    image = bytearray(max(segment["p_vaddr"] + segment["p_memsz"] for segment in loaded))
    for segment in loaded:
        image[segment["p_vaddr"] : segment["p_vaddr"] + segment["p_filesz"]] = segment.data()
    return bytes(image)


def _kernel(row: dict[str, Any], symbols: dict[str, int], image: bytes, code_offset: int) -> Kernel:
    descriptor = symbols[row[".symbol"]]
    fields = DESCRIPTOR.unpack_from(image, descriptor)
    lds_bytes, scratch_bytes, argument_bytes, entry, _, _, rsrc2, properties, preload = fields
    return Kernel(
        name=row[".name"],
        entry=descriptor + entry - code_offset,
        lanes=row[".wavefront_size"],
        n_vgpr=row[".vgpr_count"],
        n_sgpr=row[".sgpr_count"],
        n_spills=row.get(".vgpr_spill_count", 0) + row.get(".sgpr_spill_count", 0),
        max_items=row[".max_flat_workgroup_size"],
        lds_bytes=lds_bytes,
        scratch_bytes=scratch_bytes,
        argument_bytes=argument_bytes,
        arguments=tuple(
            Argument(name=each.get(".name", ""), offset=each[".offset"], size=each[".size"], kind=each[".value_kind"])
            for each in row.get(".args", ())
        ),
        rsrc2=rsrc2,
        properties=properties,
        preload=preload,
    )


def _relocations(elf: Any) -> list[tuple[int, int]]:
    section = elf.get_section_by_name(".rela.dyn")
    found = []
    for row in section.iter_relocations() if section is not None else ():
        value = row["r_addend"]
        if row["r_info_type"] == ABSOLUTE64:
            value += elf.get_section(section["sh_link"]).get_symbol(row["r_info_sym"])["st_value"]
        elif row["r_info_type"] != RELATIVE64:
            raise CodeObjectError(f"relocation type {row['r_info_type']} at 0x{row['r_offset']:x} is not handled")
        found.append((row["r_offset"], value))
    return found
