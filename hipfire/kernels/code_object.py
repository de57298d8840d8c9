"""What a compiled GPU kernel says of itself: the metadata of AMD's code objects (HSACO).

Source: LLVM's "User Guide for AMDGPU Backend", Code Object V5 Metadata. Build and reports need pyelftools and
msgpack; nothing at run time does.
"""

import io
from typing import Any

import attrs
import msgpack
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, SymbolTableSection


@attrs.frozen(kw_only=True)
class KernelInfo:
    """`arguments`: offset and size in bytes of each, hidden ones left out."""

    name: str
    arguments: tuple[tuple[int, int], ...]
    n_threads: int
    wave_size: int
    n_vgprs: int
    n_sgprs: int
    lds_nbytes: int
    scratch_nbytes: int
    n_spills: int


def read_kernels(code: bytes) -> dict[str, KernelInfo]:
    """The kernels in a code object, by name. ValueError where it has no metadata."""
    for section in ELFFile(io.BytesIO(code)).iter_sections():
        if isinstance(section, NoteSection):
            for note in section.iter_notes():
                if note["n_name"] == "AMDGPU":
                    metadata = msgpack.unpackb(note["n_descdata"])
                    return {entry[".name"]: _info(entry) for entry in metadata["amdhsa.kernels"]}
    raise ValueError("no AMDGPU metadata")


def code_sizes(code: bytes) -> dict[str, int]:
    """Bytes of machine code of each kernel, by name."""
    sections = ELFFile(io.BytesIO(code)).iter_sections()
    symbols = [
        symbol for section in sections if isinstance(section, SymbolTableSection) for symbol in section.iter_symbols()
    ]
    return {symbol.name: symbol["st_size"] for symbol in symbols if symbol["st_info"]["type"] == "STT_FUNC"}


def _info(entry: dict[str, Any]) -> KernelInfo:
    return KernelInfo(
        name=entry[".name"],
        arguments=tuple(
            (argument[".offset"], argument[".size"])
            for argument in entry[".args"]
            if not argument[".value_kind"].startswith("hidden_")
        ),
        n_threads=entry[".max_flat_workgroup_size"],
        wave_size=entry[".wavefront_size"],
        n_vgprs=entry[".vgpr_count"],
        n_sgprs=entry[".sgpr_count"],
        lds_nbytes=entry[".group_segment_fixed_size"],
        scratch_nbytes=entry[".private_segment_fixed_size"],
        n_spills=entry[".vgpr_spill_count"] + entry[".sgpr_spill_count"],
    )
