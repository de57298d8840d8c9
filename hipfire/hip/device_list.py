"""The GPUs that the runtime offers: names, architectures, memory, and which of them is meant by a name."""

import ctypes
import struct
import uuid
from collections.abc import Sequence

import attrs

from hipfire.errors import DeviceError
from hipfire.hip.functions import LAYOUT_R0000, LAYOUT_R0600, PROPERTIES_NBYTES
from hipfire.hip.library import HipLibrary

_PCI_NBYTES = 32
_UUID_NBYTES = 16


@attrs.frozen(kw_only=True)
class GpuInfo:
    """One GPU. `index` is the runtime's, after HIP_VISIBLE_DEVICES. `arch` is such as gfx1100, without features."""

    index: int
    name: str
    arch: str
    pci: str
    uuid: str
    total_nbytes: int
    n_compute_units: int
    integrated: bool


def list_devices(library: HipLibrary) -> list[GpuInfo]:
    """All of them, in the runtime's order. Raises HipError."""
    return [_info(library, index) for index in range(library.n_devices())]


def _info(library: HipLibrary, index: int) -> GpuInfo:
    name, layout = (
        ("hipGetDevicePropertiesR0600", LAYOUT_R0600)
        if library.has("hipGetDevicePropertiesR0600")
        else ("hipGetDeviceProperties", LAYOUT_R0000)
    )
    buffer = ctypes.create_string_buffer(PROPERTIES_NBYTES)
    library.call(name, buffer, index)
    properties = buffer.raw
    pci = ctypes.create_string_buffer(_PCI_NBYTES)
    library.call("hipDeviceGetPCIBusId", pci, _PCI_NBYTES, index)

    def text(offset: int) -> str:
        return properties[offset : properties.index(b"\0", offset)].decode(errors="replace")

    return GpuInfo(
        index=index,
        name=text(0) or "AMD GPU",
        # gfx90a:sramecc+:xnack- names features that our kernels do not depend on.
        arch=text(layout.arch).partition(":")[0],
        pci=pci.value.decode().lower(),
        uuid=_uuid(library, index),
        total_nbytes=struct.unpack_from("=Q", properties, layout.total_memory)[0],
        # What goes by their number should do for a card that does not tell it.
        n_compute_units=max(struct.unpack_from("=i", properties, layout.n_compute_units)[0], 1),
        integrated=bool(struct.unpack_from("=i", properties, layout.integrated)[0]),
    )


def _uuid(library: HipLibrary, index: int) -> str:
    if not library.has("hipDeviceGetUuid"):
        return ""
    raw = ctypes.create_string_buffer(_UUID_NBYTES)
    library.call("hipDeviceGetUuid", raw, index)
    # ROCm puts sixteen hexadecimal digits there as text, or XX for a GPU that has none; others sixteen bytes.
    text = raw.raw.decode("ascii", errors="replace")
    if text.startswith("XX"):
        return ""
    return f"GPU-{text}" if text.isalnum() else str(uuid.UUID(bytes=raw.raw))


def choose_device(devices: Sequence[GpuInfo], wanted: str | None) -> GpuInfo:
    """The GPU meant by an index (`0`), an architecture (`gfx1100`), a PCI address or a UUID; None: the best.

    The best is a discrete one before an integrated one, then the one with the most memory. Raises DeviceError.
    """
    if wanted is None:
        return min(devices, key=lambda gpu: (gpu.integrated, -gpu.total_nbytes, gpu.index))
    for gpu in devices:
        if wanted.lower() in {str(gpu.index), gpu.arch, gpu.pci, gpu.pci.partition(":")[2], gpu.uuid.lower()}:
            return gpu
    there = ", ".join(f"hip:{gpu.index} ({gpu.name}, {gpu.arch}, {gpu.pci})" for gpu in devices)
    raise DeviceError(f"there is no GPU {wanted}", hint=f"there is {there}")
