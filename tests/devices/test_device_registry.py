"""Devices by name: `auto` chooses and says so, every other name means that device or an error."""

import pytest

from hipfire.devices import hip
from hipfire.devices.base import Device
from hipfire.devices.hip import HipDevice
from hipfire.devices.reference import ReferenceDevice
from hipfire.devices.registry import fastest, open_device
from hipfire.errors import DeviceError


def no_native(n_threads: int | None) -> Device:
    raise DeviceError(f"no kernels for {n_threads} threads")


def some_native(n_threads: int | None) -> Device:
    return ReferenceDevice.open(n_threads, note=" posing as native")


def test_the_reference_can_be_asked_for() -> None:
    assert open_device("reference", n_threads=None).description == "reference (NumPy, 1 thread)"
    assert open_device("reference", n_threads=3).description == "reference (NumPy, 3 threads)"


def test_an_unknown_name_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(DeviceError, match=r"'gpu'.*auto, cpu, reference"):
        open_device("gpu", n_threads=None)


def test_auto_takes_the_native_device() -> None:
    assert fastest(2, native=[no_native, some_native]).description.endswith("posing as native")


def test_auto_says_why_it_took_the_reference() -> None:
    device = fastest(2, native=[no_native])
    assert device.name == "reference"
    assert not device.native
    assert device.description == ("reference (NumPy, 2 threads) for want of a faster one: no kernels for 2 threads")


@pytest.mark.parametrize(("wanted", "is_told"), [("0", True), ("gfx1100", True), (None, False)])
def test_who_asks_for_a_gpu_by_name_is_told_of_the_cpu(
    wanted: str | None, is_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hip, "open_library", lambda _: None)
    monkeypatch.setattr(hip, "list_devices", lambda _: ())
    with pytest.raises(DeviceError, match="no AMD GPU was found") as raised:
        HipDevice.open(wanted, None)
    assert str(raised.value).endswith("; or use --device cpu)") is is_told
