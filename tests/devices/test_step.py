"""What a step may hold is checked before native code takes its numbers for indices."""

import attrs
import numpy as np
import pytest
from devices.differential import make_step

from hipfire.devices.base import Limits

LIMITS = Limits(max_tokens=4, max_outputs=2, n_slots=2, max_seq=8)
STEP = make_step([1, 2, 3], start=5, slot=1, outputs=[0, 2])
ARRAYS = ("token_ids", "positions", "slots", "output_rows")


def test_a_step_up_to_every_limit_passes() -> None:
    STEP.check(LIMITS, n_vocab=4)


@pytest.mark.parametrize("name", ["positions", "slots"])
@pytest.mark.parametrize("n", [2, 4])
def test_every_row_has_a_position_and_a_slot(name: str, n: int) -> None:
    with pytest.raises(ValueError, match=r"positions and .* slots for 3 rows"):
        attrs.evolve(STEP, **{name: np.ones(n, np.int32)}).check(LIMITS, n_vocab=4)


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.float32])
def test_numbers_of_another_width_are_refused(name: str, dtype: type) -> None:
    with pytest.raises(ValueError, match="that is no int32 of"):
        attrs.evolve(STEP, **{name: getattr(STEP, name).astype(dtype)}).check(LIMITS, n_vocab=4)


@pytest.mark.parametrize(("name", "end"), list(zip(ARRAYS, (4, 8, 2, 3), strict=True)))
def test_numbers_outside_of_their_range_are_refused(name: str, end: int) -> None:
    for bad in (-1, end, 2**31 - 1, -(2**31)):
        array = getattr(STEP, name).copy()
        array[-1] = bad
        with pytest.raises(ValueError, match=rf"that is no int32 of 0\.\.{end - 1}$"):
            attrs.evolve(STEP, **{name: array}).check(LIMITS, n_vocab=4)
