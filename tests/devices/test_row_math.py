"""What choosing a token takes of a row of scores: every implementation gives the same bits, and the right ones."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from hipfire.devices.logits import COLDEST, HOTTEST, WEIGHT_ONE, RowMath, best_of
from hipfire.devices.native_row_math import NativeRowMath
from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.kernels.select import load_variant, machine_variants

SETTINGS = settings(derandomize=True, deadline=None, max_examples=60)
NUMPY = NumpyRowMath()
NATIVE = {name: NativeRowMath(load_variant(name)) for name in machine_variants()}
EVERY: dict[str, RowMath] = {"numpy": NUMPY, **NATIVE}
LARGEST = float(np.finfo(np.float32).max)


def scores_of(n: int, seed: int, *, digits: int = 8, n_masked: int = 0) -> NDArray[np.float32]:
    """Few digits make many ties."""
    rng = np.random.default_rng(seed)
    scores = np.round(rng.standard_normal(n) * 5, digits).astype(np.float32)
    scores[rng.choice(n, n_masked, replace=False)] = -np.inf
    return scores


def rows() -> Iterator[NDArray[np.float32]]:
    yield np.zeros(5000, np.float32)
    yield np.array([0.0], np.float32)
    yield np.array([-0.0, 0.0, -LARGEST, LARGEST, 1e-45], np.float32)
    yield np.arange(20000, dtype=np.float32)
    yield -np.arange(20000, dtype=np.float32)
    yield scores_of(20001, 1, digits=0)
    yield scores_of(9000, 2, n_masked=8990)
    yield scores_of(49152, 3, n_masked=49000)
    yield np.where(np.arange(3000) == 2999, np.float32(-LARGEST), np.float32(-np.inf)).astype(np.float32)


@pytest.mark.parametrize("math", EVERY.values(), ids=EVERY)
@pytest.mark.parametrize("row", list(rows()), ids=len)
def test_the_best_are_the_head_of_a_stable_sort(math: RowMath, row: NDArray[np.float32]) -> None:
    for k in {1, 2, 40, 64, 700, row.size} & set(range(row.size + 1)):
        assert math.best(row, k).tolist() == np.argsort(-row, kind="stable")[:k].tolist()


@SETTINGS
@given(st.integers(1, 20000), st.integers(0, 2**32), st.integers(0, 2), st.integers(1, 3000), st.floats(0, 1))
def test_the_best_of_any_row_are(n: int, seed: int, digits: int, k: int, masked: float) -> None:
    row = scores_of(n, seed, digits=digits, n_masked=int(masked**0.1 * (n - 1)))
    k = min(k, n)
    expected = np.argsort(-row, kind="stable")[:k]
    for math in EVERY.values():
        np.testing.assert_array_equal(math.best(row, k), expected)


@pytest.mark.parametrize("math", EVERY.values(), ids=EVERY)
def test_weights_are_exponentials(math: RowMath) -> None:
    row = -np.linspace(0, 40, 100_001).astype(np.float32)
    for temperature in (0.3, 1.0, 2.0):
        weights = math.weights(row, 0.0, temperature)
        exact = np.exp(row.astype(np.float64) / temperature)
        assert weights[0] == WEIGHT_ONE
        # Rounded down to an integer, of a score times a factor that were rounded to float32.
        error = np.abs(weights / WEIGHT_ONE / exact - 1)
        assert (error <= 2e-7 + 1.2e-7 * -row / temperature + 1 / np.maximum(weights, 1)).all()


@pytest.mark.parametrize("math", NATIVE.values(), ids=NATIVE)
@pytest.mark.parametrize("temperature", [COLDEST, 1e-3, 0.7, 1.0, 13.0, HOTTEST])
def test_weights_have_the_same_bits_everywhere(math: RowMath, temperature: float) -> None:
    for row in (*rows(), scores_of(10_007, 5), scores_of(10_007, 6) * np.float32(1e30)):
        highest = float(row.max())
        weights = NUMPY.weights(row, highest, temperature)
        np.testing.assert_array_equal(math.weights(row, highest, temperature), weights)
        assert math.total(row, highest, temperature) == NUMPY.total(row, highest, temperature) == sum(weights.tolist())
        assert weights.max() == WEIGHT_ONE
        assert (weights[np.isneginf(row)] == 0).all()


@pytest.mark.parametrize("n", [1, 15, 16, 17, 1000, 16384, 16385, 262_144])
def test_a_draw_is_where_the_running_sum_passes_the_share(n: int) -> None:
    row = scores_of(n, n)
    highest, rng = float(row.max()), np.random.default_rng(n)
    for least in (0, WEIGHT_ONE // 1000, WEIGHT_ONE):
        weights = NUMPY.weights(row, highest, 1.0)
        weights[weights < least] = 0
        sums = weights.cumsum()
        for share in (0, 2**53 - 1, *rng.integers(0, 2**53, 5).tolist()):
            expected = int((sums > (share * int(sums[-1])) >> 53).argmax())
            for math in EVERY.values():
                assert math.draw(row, highest, 1.0, least=least, share=share) == expected


@pytest.mark.parametrize("math", EVERY.values(), ids=EVERY)
def test_what_is_not_finite_is_found_wherever_it_is(math: RowMath) -> None:
    row = scores_of(100, 7)
    assert math.is_finite(row)
    for at in range(100):
        for bad in (np.nan, -np.nan, np.inf, -np.inf):
            broken = row.copy()
            broken[at] = bad
            assert not math.is_finite(broken)


@pytest.mark.parametrize("math", EVERY.values(), ids=EVERY)
def test_a_mask_leaves_what_it_allows(math: RowMath) -> None:
    row = scores_of(1003, 8)
    allowed = np.random.default_rng(9).random(1003) < 0.5
    found = math.allow(row, allowed)
    np.testing.assert_array_equal(found[allowed], row[allowed])
    assert np.isneginf(found[~allowed]).all()


@pytest.mark.parametrize("math", EVERY.values(), ids=EVERY)
def test_the_best_of_several_rows(math: RowMath) -> None:
    table = np.array([[1, 3, 2], [5, 5, 5], [0, np.inf, 0], [np.nan, 1, 2], [-np.inf, 1, 2]], np.float32)
    best = best_of(table, 2, math)
    assert best is not None
    assert best.ids[:2].tolist() == [[1, 2], [0, 1]]
    assert best.values[:2].tolist() == [[3, 2], [5, 5]]
    assert np.isnan(best.values[2:, 0]).all()
    everything = best_of(table, 64, math)
    assert everything is not None
    assert everything.ids.shape == (5, 3)
    assert best_of(table, 0, math) is None
