"""Which GPU is meant, and what is read of it: with a stand-in for the runtime library, in both of its layouts."""

import ctypes
import struct
from typing import Any

import pytest

from hipfire.errors import DeviceError
from hipfire.hip.device_list import GpuInfo, choose_device, list_devices
from hipfire.hip.functions import LAYOUT_R0000, LAYOUT_R0600, PropertyLayout
from hipfire.hip.library import HipError, HipLibrary

GIB = 1 << 30


class StandInLibrary(HipLibrary):
    """Answers as a library with one GPU would; `layout` is that of its properties."""

    def __init__(self, layout: PropertyLayout, uuid: bytes = b"0123456789abcdef") -> None:
        self.layout = layout
        self.uuid = uuid

    def has(self, name: str) -> bool:
        return self.layout is LAYOUT_R0600 or not name.endswith(("R0600", "Uuid"))

    def call(self, name: str, *arguments: Any) -> None:
        match name:
            case "hipInit":
                assert arguments == (0,)
            case "hipDeviceGetUuid":
                arguments[0][: len(self.uuid)] = self.uuid
            case "hipGetDeviceCount":
                ctypes.cast(arguments[0], ctypes.POINTER(ctypes.c_int))[0] = 1
            case "hipDeviceGetPCIBusId":
                arguments[0].value = b"0000:0C:00.0"
            case "hipGetDevicePropertiesR0600" | "hipGetDeviceProperties":
                assert name.endswith("R0600") == (self.layout is LAYOUT_R0600)
                self._fill(arguments[0])
            case _:
                raise AssertionError(name)

    def _fill(self, buffer: ctypes.Array[ctypes.c_char]) -> None:
        buffer[:12] = b"Radeon Test\0"
        struct.pack_into("=Q", buffer, self.layout.total_memory, 24 * GIB)
        struct.pack_into("=i", buffer, self.layout.n_compute_units, 96)
        struct.pack_into("=i", buffer, self.layout.integrated, 1)
        arch = b"gfx90a:sramecc+:xnack-\0"
        buffer[self.layout.arch : self.layout.arch + len(arch)] = arch


@pytest.mark.parametrize(("layout", "uuid"), [(LAYOUT_R0600, "GPU-0123456789abcdef"), (LAYOUT_R0000, "")])
def test_both_layouts_of_the_properties_are_read(layout: PropertyLayout, uuid: str) -> None:
    (gpu,) = list_devices(StandInLibrary(layout))
    assert gpu == GpuInfo(
        index=0,
        name="Radeon Test",
        arch="gfx90a",
        pci="0000:0c:00.0",
        uuid=uuid,
        total_nbytes=24 * GIB,
        n_compute_units=96,
        integrated=True,
    )


@pytest.mark.parametrize(("raw", "uuid"), [(b"XX", ""), (bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f")])
def test_a_uuid_that_is_none_or_no_text(raw: bytes, uuid: str) -> None:
    assert list_devices(StandInLibrary(LAYOUT_R0600, raw))[0].uuid == uuid


def gpu(index: int, arch: str, *, total_nbytes: int = 16 * GIB, integrated: bool = False) -> GpuInfo:
    return GpuInfo(
        index=index,
        name=f"card {index}",
        arch=arch,
        pci=f"0000:0{index}:00.0",
        uuid=f"GPU-{index:016x}",
        total_nbytes=total_nbytes,
        n_compute_units=40,
        integrated=integrated,
    )


GPUS = [
    gpu(0, "gfx1151", total_nbytes=96 * GIB, integrated=True),
    gpu(1, "gfx1100"),
    gpu(2, "gfx1201", total_nbytes=32 * GIB),
]


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (None, 2),  # the largest discrete one
        ("0", 0),
        ("gfx1100", 1),
        ("0000:02:00.0", 2),
        ("01:00.0", 1),
        ("GPU-0000000000000001", 1),
        ("gpu-0000000000000002", 2),
    ],
)
def test_a_gpu_is_meant_by_index_architecture_address_or_uuid(wanted: str | None, index: int) -> None:
    assert choose_device(GPUS, wanted).index == index


def test_a_gpu_that_is_not_there_is_an_error_that_lists_those_that_are() -> None:
    with pytest.raises(DeviceError, match=r"no GPU 7 \(there is hip:0 \(card 0, gfx1151, 0000:00:00.0\), hip:1"):
        choose_device(GPUS, "7")


def test_an_integrated_gpu_is_better_than_none() -> None:
    assert choose_device(GPUS[:1], None).index == 0


def test_an_error_names_what_failed() -> None:
    error = HipError("hipMalloc: hipErrorOutOfMemory: out of memory", status=2)
    assert (error.status, error.code) == (2, "device_error")
