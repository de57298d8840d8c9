"""The highest logits of a step's rows, on the devices that find them on the host."""

import pytest
from devices.given_logits import assert_finds_the_best, assert_sees_what_is_not_finite, table_of

from hipfire.devices.base import Device
from hipfire.devices.cpu import CpuDevice
from hipfire.devices.reference import ReferenceDevice

DEVICES: dict[str, Device] = {"cpu": CpuDevice.open(1), "reference": ReferenceDevice.open(None)}


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
@pytest.mark.parametrize("n_vocab", [5, 64, 8197])
def test_the_best_logits_are_found(device: Device, n_vocab: int) -> None:
    assert_finds_the_best(device, table_of(n_vocab))


@pytest.mark.parametrize("device", DEVICES.values(), ids=DEVICES)
def test_a_logit_that_is_not_finite_is_seen(device: Device) -> None:
    assert_sees_what_is_not_finite(device, 300)
