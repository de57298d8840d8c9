"""The devices that this build has, by the names that settings use. Knows no model and no file format."""

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from hipfire.devices.base import Device
from hipfire.devices.cpu import CpuDevice
from hipfire.devices.hip import HipDevice
from hipfire.devices.reference import ReferenceDevice
from hipfire.errors import DeviceError

log = logging.getLogger("hipfire.engine")

Opener = Callable[[int | None], Device]
"""Takes the number of threads, None to let the device choose; raises DeviceError where the device is not to be had."""


def open_device(name: str, *, n_threads: int | None) -> Device:
    """The device of this name: one of DEVICES, or a GPU: `hip:0`, `gfx1100`, a PCI address or a UUID.

    Only `auto` chooses; what it chose is in `description`, why in the log. Raises DeviceError for an unknown name, and
    for a device that cannot be had or cannot do with `n_threads`.
    """
    opener = DEVICES.get(name)
    if opener is not None:
        return opener(n_threads)
    if not any(character.isdigit() for character in name):
        # Whatever names one GPU of several has a digit.
        raise DeviceError(f"no device is called {name!r}", hint=f"choose one of {', '.join(DEVICES)}, or a GPU: hip:0")
    return HipDevice.open(name.removeprefix("hip:"), n_threads)


def fastest(n_threads: int | None, *, native: Sequence[Opener]) -> Device:
    """The first of the native devices that is to be had; the reference, which says why, where none is."""
    reason = None
    for opener in native:
        try:
            return opener(n_threads)
        except DeviceError as error:
            log.info("%s", error)
            reason = error
    note = f" for want of a faster one: {reason.message}" if reason else ""
    return ReferenceDevice.open(n_threads, note=note)


DEVICES: Mapping[str, Opener] = MappingProxyType(
    {
        "auto": functools.partial(fastest, native=(functools.partial(HipDevice.open, None), CpuDevice.open)),
        "cpu": CpuDevice.open,
        "reference": ReferenceDevice.open,
    }
)
