"""Logits that a test gives, put through a device: what it finds in them must be what the host would find."""

import attrs
import numpy as np
from devices.differential import make_step
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Device, Executable, Limits, Step
from hipfire.devices.logits import MAX_BEST, best_of
from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.dtypes import DTYPES
from hipfire.engine.sampler import choose, choose_of_best
from hipfire.errors import BadLogits
from hipfire.program.operands import Weight
from hipfire.program.program import Builder
from hipfire.wire.messages import Sampling

LARGEST = float(np.finfo(np.float32).max)
SETTINGS = (
    Sampling(),
    Sampling(temperature=1.0, top_k=1),
    Sampling(temperature=0.8, top_k=20, top_p=0.9, min_p=0.01),
    Sampling(temperature=3.0, top_k=40, seed=5),
    Sampling(temperature=1.0, top_k=MAX_BEST, top_p=0.5),
)


def load(device: Device, table: NDArray[np.float32]) -> Executable:
    """A Program whose logits are, for token i, row i of the table."""
    builder = Builder()
    logits = builder.gather_outputs(
        "logits", builder.embed("rows", Weight(name="table", dtype=DTYPES["f32"], shape=table.shape))
    )
    limits = Limits(max_tokens=len(table), max_outputs=len(table), n_slots=1, max_seq=len(table))
    tensors = {"table": np.ascontiguousarray(table).view(np.uint8).reshape(-1)}
    return device.load(builder.finish(logits), tensors, limits, on_progress=lambda fraction: None)


def table_of(n: int) -> NDArray[np.float32]:
    """Rows of n logits with all that is awkward about order."""
    rng = np.random.default_rng(n)
    ends = np.zeros(n)
    ends[[0, -1]] = 1
    rows = [
        rng.standard_normal(n) * 5,
        np.round(rng.standard_normal(n)),
        np.full(n, -3.5),
        np.where(rng.random(n) < 0.5, 0.0, -0.0),
        np.arange(n),
        -np.arange(n),
        ends,
        rng.choice([-LARGEST, -1e-45, -0.0, 1e-45, LARGEST], n),
    ]
    return np.array(rows, np.float32)


def broken_table(n: int) -> NDArray[np.float32]:
    """Rows each of which has one logit that is not finite: the first, the last, one in between."""
    bad = (np.nan, -np.nan, np.inf, -np.inf)
    table = np.tile(np.arange(n, dtype=np.float32), (3 * len(bad), 1))
    for i, row in enumerate(table):
        row[(0, n // 2, n - 1)[i % 3]] = bad[i // 3]
    return table


def assert_finds_the_best(device: Device, table: NDArray[np.float32]) -> None:
    """As many as are asked for, in order, and a token chosen from them is the one that whole rows give."""
    executable = load(device, table)
    for n_best in (1, MAX_BEST):
        logits = executable.run(make_step_wanting(len(table), n_best), CancelFlag())
        expected = best_of(table, n_best, NumpyRowMath())
        assert expected is not None
        assert logits.best is not None
        np.testing.assert_array_equal(logits.best.ids, expected.ids)
        np.testing.assert_array_equal(logits.best.values, expected.values)
    assert logits.best is not None
    math = device.row_math
    for row, ids, values in zip(table, logits.best.ids, logits.best.values, strict=True):
        for sampling in SETTINGS:
            for at in range(3):
                whole = choose(row, sampling, recent=(), n=at, row_math=NumpyRowMath())
                assert choose_of_best(ids, values, sampling, n=at, row_math=math) == whole
    executable.close()


def assert_sees_what_is_not_finite(device: Device, n: int) -> None:
    """Wherever it is, also with the fewest logits looked for."""
    table = broken_table(n)
    executable = load(device, table)
    for n_best in (1, 2):
        best = executable.run(make_step_wanting(len(table), n_best), CancelFlag()).best
        assert best is not None
        for ids, values in zip(best.ids, best.values, strict=True):
            try:
                choose_of_best(ids, values, Sampling(), n=0, row_math=device.row_math)
            except BadLogits:
                continue
            raise AssertionError("a logit that is not finite was not seen")
    executable.close()


def make_step_wanting(n_rows: int, n_best: int) -> Step:
    """A step of the first tokens, which wants no whole rows."""
    return attrs.evolve(make_step(range(n_rows)), n_best=n_best, whole=False)
