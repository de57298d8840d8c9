"""Run one Program on two devices and compare what every op wrote, not only the logits."""

from collections.abc import Callable, Mapping, Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Device, Limits, Step
from hipfire.dtypes import DTYPES
from hipfire.program import ops
from hipfire.program.program import Program

Tolerance = Callable[[ops.Op], float]
"""How far an op's output may be off, as a part of the expected output's root mean square."""


@attrs.frozen(kw_only=True)
class OpDifference:
    """How far apart the devices were after one op of one step: the largest difference, over the expected rms."""

    step: int
    line: str
    """The op, as the Program prints it."""
    error: float
    tolerance: float

    @property
    def passes(self) -> bool:
        # Not `error > tolerance`: an error that is no number must not pass.
        return self.error <= self.tolerance

    def __str__(self) -> str:
        return f"step {self.step}: off by {self.error:.2e}, {self.tolerance:.0e} allowed: {self.line}"


def make_step(tokens: Sequence[int], *, start: int = 0, slot: int = 0, outputs: Sequence[int] | None = None) -> Step:
    """One sequence's tokens from position `start` on; None outputs: logits of every row."""
    n = len(tokens)
    return Step(
        token_ids=np.asarray(tokens, np.int32),
        positions=np.arange(start, start + n, dtype=np.int32),
        slots=np.full(n, slot, np.int32),
        output_rows=np.arange(n, dtype=np.int32) if outputs is None else np.asarray(outputs, np.int32),
    )


def joined(*steps: Step) -> Step:
    """One step of all the rows."""
    starts = np.cumsum([0, *(len(step.token_ids) for step in steps[:-1])], dtype=np.int32)
    return Step(
        token_ids=np.concatenate([step.token_ids for step in steps]),
        positions=np.concatenate([step.positions for step in steps]),
        slots=np.concatenate([step.slots for step in steps]),
        output_rows=np.concatenate([step.output_rows + at for step, at in zip(steps, starts, strict=True)]),
    )


def limits_for(steps: Sequence[Step], *, kv_cache: str = "auto") -> Limits:
    """The smallest limits that hold these steps."""
    return Limits(
        max_tokens=max(len(step.token_ids) for step in steps),
        max_outputs=max(1, *(len(step.output_rows) for step in steps)),
        n_slots=1 + max(int(step.slots.max()) for step in steps),
        max_seq=1 + max(int(step.positions.max()) for step in steps),
        kv_cache=kv_cache,
    )


def compare(
    program: Program,
    tensors: Mapping[str, NDArray[np.uint8]],
    steps: Sequence[Step],
    *,
    actual: Device,
    expected: Device,
    tolerance: Tolerance,
    kv_cache: str = "auto",
) -> list[OpDifference]:
    """Run the steps one after the other on both devices; how far apart they were after each op, in order.

    `kv_cache` is the actual device's; the expected one chooses its own.
    """
    lines = str(program).splitlines()
    found = []
    loaded = []
    try:
        for device, kv in ((actual, kv_cache), (expected, "auto")):
            limits = limits_for(steps, kv_cache=kv)
            loaded.append(device.load(program, tensors, limits, on_progress=lambda _: None, keep_buffers=True))
        for number, step in enumerate(steps):
            for executable in loaded:
                executable.run(step, CancelFlag())
            for op, line in zip(program.ops, lines, strict=True):
                got, wanted = (executable.read(op.out) for executable in loaded)
                error = _relative_error(got, wanted)
                found.append(OpDifference(step=number, line=line, error=error, tolerance=tolerance(op)))
    finally:
        for executable in loaded:
            executable.close()
    return found


def rounding_of(relative: float, *, exact: float = 2e-5) -> Tolerance:
    """What each op may be off when products are off by `relative` of their rms, what is before them by `exact`."""

    def tolerance(op: ops.Op) -> float:
        if isinstance(op, ops.Embed | ops.RopeAngles):
            return exact
        # The largest products of a gate and its input are many times the rms, and so is their error.
        return 5 * relative if isinstance(op, ops.Gated) else relative

    return tolerance


def tolerance_of(dtype: str) -> Tolerance:
    """What an op of the HIP device may be off with weights of a format, keys and values in float32.

    Float formats: the arithmetic is float32, only the order of additions differs; a gate's largest products are many
    times the rms, and its error with them. Quantised ones: activations are
    rounded to 16 bits, by at most half of a tile's largest / 32512. Where the largest is three times the rms, that is
    3e-5 of a product's rms in the mean; the worst of some hundred outputs is five times that, after three products
    twice that.
    """
    if DTYPES[dtype].is_quantised:
        return rounding_of(5e-4, exact=1e-5)
    return lambda op: 2e-5 if isinstance(op, ops.Gated) else 1e-5


def assert_same(differences: Sequence[OpDifference]) -> None:
    """Fail with the first op that was too far off: what comes after it is its consequence."""
    first = next((difference for difference in differences if not difference.passes), None)
    assert first is None, str(first)


def _relative_error(got: NDArray[np.float32], wanted: NDArray[np.float32]) -> float:
    if got.shape != wanted.shape:
        return float("inf")
    rms = float(np.sqrt(np.mean(np.square(wanted, dtype=np.float64)))) if wanted.size else 1.0
    return float(np.max(np.abs(got - wanted), initial=0.0)) / (rms or 1.0)
