"""The devices that this build has, by the names that settings use. Knows no model and no file format."""

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType

from hipfire.devices.base import Device
from hipfire.devices.cpu import CpuDevice
from hipfire.devices.reference import ReferenceDevice
from hipfire.errors import DeviceError

Opener = Callable[[int | None], Device]
"""Takes the number of threads, None to let the device choose; raises DeviceError where the device is not to be had."""


def open_device(name: str, *, n_threads: int | None) -> Device:
    """The device of this name: one of DEVICES. Only `auto` chooses; what it chose and why is in `description`.

    Raises DeviceError for an unknown name, and for a device that cannot be had or cannot do with `n_threads`.
    """
    opener = DEVICES.get(name)
    if opener is None:
        raise DeviceError(f"no device is called {name!r}", hint=f"choose one of {', '.join(DEVICES)}")
    return opener(n_threads)


def fastest(n_threads: int | None, *, native: Opener) -> Device:
    """The native device, or the reference where that one is not to be had; its description then says why."""
    try:
        return native(n_threads)
    except DeviceError as error:
        return ReferenceDevice.open(n_threads, note=f" for want of a faster one: {error.message}")


DEVICES: Mapping[str, Opener] = MappingProxyType(
    {
        "auto": functools.partial(fastest, native=CpuDevice.open),
        "cpu": CpuDevice.open,
        "reference": ReferenceDevice.open,
    }
)
