"""The comparison of two devices finds the first op that went wrong, and lets nothing pass that is no number."""

from collections.abc import Mapping

import attrs
import numpy as np
import pytest
from devices.differential import assert_same, compare, make_step
from devices.random_model import RandomModel
from numpy.typing import NDArray

from hipfire.devices.base import Limits, Progress
from hipfire.devices.reference import ReferenceDevice, ReferenceExecutable
from hipfire.program import ops
from hipfire.program.program import Program


@attrs.frozen(kw_only=True)
class FaultyDevice:
    """A reference whose weight of one name is set to one value everywhere."""

    weight: str
    value: float
    device: ReferenceDevice = attrs.field(factory=ReferenceDevice.open)
    name = "faulty"
    description = "faulty"
    native = False

    def free_nbytes(self) -> int | None:
        return self.device.free_nbytes()

    def load_nbytes(self, program: Program, limits: Limits) -> int:
        return self.device.load_nbytes(program, limits)

    def load(
        self,
        program: Program,
        tensors: Mapping[str, NDArray[np.uint8]],
        limits: Limits,
        *,
        on_progress: Progress,
        keep_buffers: bool = False,
    ) -> ReferenceExecutable:
        n = tensors[self.weight].size // 4
        wrong = {self.weight: np.full(n, self.value, np.float32).view(np.uint8)}
        return self.device.load(
            program, {**tensors, **wrong}, limits, on_progress=on_progress, keep_buffers=keep_buffers
        )


def tolerance(_: ops.Op) -> float:
    return 1e-6


@pytest.mark.parametrize("value", [0.5, float("nan")])
def test_the_first_op_that_went_wrong_is_named(value: float) -> None:
    program, tensors = RandomModel().build()
    faulty = FaultyDevice(weight="blk.1.ffn_norm.weight", value=value)
    steps = [make_step([1, 2, 3]), make_step([4], start=3)]
    found = compare(program, tensors, steps, actual=faulty, expected=ReferenceDevice.open(), tolerance=tolerance)
    assert len(found) == 2 * len(program.ops)
    with pytest.raises(AssertionError, match=r"step 0: off by .*: blk\.1\.ffn_norm\["):
        assert_same(found)


def test_a_device_is_the_same_as_itself() -> None:
    program, tensors = RandomModel().build()
    device = ReferenceDevice.open()
    found = compare(program, tensors, [make_step([1, 2])], actual=device, expected=device, tolerance=lambda _: 0.0)
    assert_same(found)
