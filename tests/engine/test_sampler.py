import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.devices.logits import MAX_BEST, best_of
from hipfire.devices.native_row_math import NativeRowMath
from hipfire.engine import sampler
from hipfire.engine.sampler import Choice, adjusted, choose_of_best, index_at, n_best_wanted, random_bits
from hipfire.errors import BadLogits
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.wire.messages import Sampling

SETTINGS = settings(derandomize=True, deadline=None, max_examples=100)


MATH = NativeRowMath(load_variant(machine_variants()[0]))


def choose(logits: np.ndarray, sampling: Sampling, *, recent, n: int, allowed: np.ndarray | None = None) -> Choice:
    """The choice from the whole row, which is that from the best logits where they are enough."""
    choice = sampler.choose(logits, sampling, recent=recent, n=n, allowed=allowed, row_math=MATH)
    if (k := n_best_wanted(sampling, masked=allowed is not None)) is not None:
        # More than are needed: others of the step may want them.
        best = best_of(logits[None], k + 3, MATH)
        assert choose_of_best(best.ids[0], best.values[0], sampling, n=n, row_math=MATH) == choice
    return choice


def candidates(logits: np.ndarray, sampling: Sampling) -> tuple[np.ndarray, np.ndarray]:
    return sampler.candidates(logits, sampling, MATH)


def logits_of(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def random_logits(n: int, seed: int = 0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(n) * 3).astype(np.float32)


def filtered_by_sorting(scores: np.ndarray, sampling: Sampling) -> dict[int, float]:
    """The distribution by its definition: sort everything, filter step by step, renormalise, in float64."""
    order = np.lexsort((np.arange(scores.size), -scores))
    p = np.exp((scores[order].astype(np.float64) - scores.max()) / sampling.temperature)
    if sampling.top_k:
        order, p = order[: sampling.top_k], p[: sampling.top_k]
    if sampling.top_p < 1:
        n_kept = int((np.cumsum(p) < sampling.top_p * p.sum()).sum()) + 1
        order, p = order[:n_kept], p[:n_kept]
    kept = p >= sampling.min_p * p[0]
    order, p = order[kept], p[kept]
    return dict(zip(order.tolist(), (p / p.sum()).tolist(), strict=True))


# Greedy


def test_temperature_zero_is_the_exact_argmax():
    logits = random_logits(1000)
    assert choose(logits, Sampling(), recent=(), n=0).token == int(np.argmax(logits))


def test_of_equal_logits_greedy_takes_the_lowest_id():
    assert choose(logits_of(0, 2, 1, 2, 2), Sampling(), recent=(), n=0).token == 1


def test_zero_and_minus_zero_are_equal():
    assert choose(logits_of(-1, -0.0, 0.0), Sampling(), recent=(), n=0).token == 1


def test_greedy_does_not_look_at_the_filters_or_the_seed():
    logits = random_logits(100)
    odd = Sampling(top_k=3, top_p=0.1, min_p=0.5, seed=99)
    assert choose(logits, odd, recent=(), n=5) == choose(logits, Sampling(), recent=(), n=0)


# What is enough to choose by


@pytest.mark.parametrize(
    ("sampling", "n_best"),
    [
        (Sampling(top_k=40), 1),
        (Sampling(temperature=1.0, top_k=MAX_BEST, top_p=0.5, min_p=0.1), MAX_BEST),
        (Sampling(temperature=1.0, top_k=MAX_BEST + 1), None),
        (Sampling(temperature=1.0, top_p=0.5), None),
        (Sampling(logit_bias={3: 1.0}), None),
        (Sampling(repeat_penalty=1.1), None),
        (Sampling(presence_penalty=-0.1), None),
        (Sampling(frequency_penalty=0.1), None),
        (Sampling(repeat_penalty=1.1, penalty_window=0), 1),
        (Sampling(n_logprobs=0), None),
    ],
)
def test_only_what_looks_beyond_the_best_wants_whole_rows(sampling, n_best):
    assert n_best_wanted(sampling, masked=False) == n_best
    assert n_best_wanted(sampling, masked=True) is None


# Mask


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=5.0, seed=1), Sampling(temperature=5.0, top_k=2)]
)
def test_what_is_not_allowed_never_comes_however_unlikely_the_rest_is(sampling):
    lowest = float(np.finfo(np.float32).min)
    allowed = np.array([False, True, False])
    choice = choose(logits_of(9, lowest, 8), sampling, recent=(), n=0, allowed=allowed)
    assert choice.token == 1


# Bias and penalties


def test_bias_is_added_to_the_raw_logits():
    scores = adjusted(logits_of(1, 2, 3), Sampling(logit_bias={0: 5.0, 2: -100.0}), recent=(), n=9)
    assert scores.tolist() == [6.0, 2.0, -97.0]


def test_bias_can_force_and_forbid_a_token():
    logits = random_logits(50)
    assert choose(logits, Sampling(logit_bias={7: 100.0}), recent=(), n=0).token == 7
    best = int(logits.argmax())
    assert choose(logits, Sampling(logit_bias={best: -100.0}), recent=(), n=0).token != best


def test_repeat_penalty_divides_above_zero_and_multiplies_below():
    scores = adjusted(logits_of(4, -4, 4, -4), Sampling(repeat_penalty=2.0), recent=[0, 1, 1], n=9)
    assert scores.tolist() == [2.0, -8.0, 4.0, -4.0]


def test_presence_counts_once_and_frequency_every_time():
    sampling = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted(logits_of(1, 1, 1), sampling, recent=[0, 2, 2, 2], n=9).tolist() == [0.25, 1.0, -0.25]


def test_presence_and_frequency_look_at_the_answer_only() -> None:
    both = Sampling(presence_penalty=0.5, frequency_penalty=0.25)
    assert adjusted(logits_of(1, 1, 1), both, recent=[0, 2, 2, 2], n=2).tolist() == [1.0, 1.0, 0.0]
    assert adjusted(logits_of(1, 1, 1), both, recent=[0, 2, 2, 2], n=0).tolist() == [1.0, 1.0, 1.0]
    assert adjusted(logits_of(2, 2), Sampling(repeat_penalty=2.0), recent=[0], n=0).tolist() == [1.0, 2.0]


def test_bias_comes_before_the_repeat_penalty():
    sampling = Sampling(logit_bias={0: 3.0}, repeat_penalty=2.0)
    assert adjusted(logits_of(-1, 0), sampling, recent=[0], n=9).tolist() == [1.0, 0.0]


def test_penalties_stay_within_float32():
    scores = adjusted(logits_of(-3e38, 0), Sampling(repeat_penalty=2.0), recent=[0], n=9)
    assert np.isfinite(scores).all()
    assert choose(logits_of(-3e38, 3e38), Sampling(temperature=1.0, repeat_penalty=2.0), recent=[0], n=0).token == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("top_k", [0, 2])
def test_a_bias_beyond_float32_forces_and_forbids_all_the_same(temperature, top_k):
    wishes = {"temperature": temperature, "top_k": top_k}
    forced = Sampling(logit_bias={2: 1e300}, **wishes)
    assert choose(logits_of(5, 1, 2, 3), forced, recent=(), n=0).token == 2
    only = Sampling(logit_bias={0: -1e300, 1: -1e300, 2: -1e300}, **wishes)
    assert choose(logits_of(5, 1, 2, 3), only, recent=(), n=0).token == 3


def test_the_logits_themselves_are_left_alone():
    logits = random_logits(100)
    logits.flags.writeable = False
    sampling = Sampling(temperature=0.7, logit_bias={1: 1.0}, repeat_penalty=1.3, presence_penalty=1.0, n_logprobs=3)
    choose(logits, sampling, recent=[1, 2, 3], n=0)


def test_nothing_to_adjust_is_no_copy():
    logits = random_logits(10)
    assert adjusted(logits, Sampling(), recent=[1, 2], n=9) is logits


# Filters


def test_top_k_keeps_the_k_best_and_of_equals_the_lowest_ids():
    ids, _ = candidates(logits_of(1, 3, 2, 3, 3, 3), Sampling(temperature=1.0, top_k=3))
    assert ids.tolist() == [1, 3, 4]


def test_top_p_keeps_the_token_that_reaches_the_share():
    # 0.5, 0.25, 0.125, 0.125
    logits = np.log2(logits_of(0.125, 0.5, 0.125, 0.25)) * np.float32(np.log(2))
    for top_p, kept in ((0.4, [1]), (0.6, [1, 3]), (0.76, [1, 3, 0]), (0.95, [1, 3, 0, 2])):
        ids, _ = candidates(logits, Sampling(temperature=1.0, top_p=top_p))
        assert ids.tolist() == kept


def test_top_p_is_of_what_top_k_left():
    logits = np.log(logits_of(0.4, 0.3, 0.2, 0.1))
    ids, _ = candidates(logits, Sampling(temperature=1.0, top_k=2, top_p=0.5))
    assert ids.tolist() == [0]


def test_min_p_is_relative_to_the_best():
    logits = np.log(logits_of(0.5, 0.26, 0.24))
    ids, _ = candidates(logits, Sampling(temperature=1.0, min_p=0.5))
    assert ids.tolist() == [0, 1]
    for top_k in (0, 3):
        sampling = Sampling(temperature=1.0, min_p=0.5, top_k=top_k)
        assert {choose(logits, sampling, recent=(), n=n).token for n in range(50)} == {0, 1}


def test_temperature_comes_before_the_filters():
    logits = np.log(logits_of(0.6, 0.4))
    assert candidates(logits, Sampling(temperature=1.0, top_p=0.59))[0].tolist() == [0]
    assert candidates(logits, Sampling(temperature=100.0, top_p=0.59))[0].tolist() == [0, 1]


def test_top_k_of_one_and_a_tiny_temperature_are_greedy():
    logits = random_logits(500)
    best = int(logits.argmax())
    for sampling in (Sampling(temperature=2.0, top_k=1), Sampling(temperature=1e-300), Sampling(temperature=1e-38)):
        assert {choose(logits, sampling, recent=(), n=n).token for n in range(20)} == {best}


@SETTINGS
@given(
    st.integers(2, 9000),
    st.integers(0, 300),
    st.floats(0.05, 1.0),
    st.sampled_from([0.0, 0.02, 0.5, 1.0]),
    st.floats(0.1, 2.0),
    st.integers(0, 2**32),
)
def test_candidates_are_those_of_a_full_sort(n, top_k, top_p, min_p, temperature, seed):
    # Coarse logits have many ties.
    logits = np.round(random_logits(n, seed), 1).astype(np.float32)
    sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    ids, weights = candidates(logits, sampling)
    expected = filtered_by_sorting(logits, sampling)
    # Where a sum of probabilities is top_p but for rounding, either side of the border is right.
    assert len(set(ids.tolist()) ^ set(expected)) <= 1
    shared = [i for i, token in enumerate(ids.tolist()) if token in expected]
    p = np.array([expected[int(token)] for token in ids[shared]])
    assert weights[shared] / weights[shared].sum() == pytest.approx(p / p.sum(), rel=1e-4)


@SETTINGS
@given(st.integers(1, 5000), st.integers(1, 300), st.integers(0, 2**32))
def test_top_ids_are_the_head_of_a_stable_sort(n, k, seed):
    scores = np.round(random_logits(n, seed), 1).astype(np.float32)
    assert MATH.best(scores, min(k, n)).tolist() == np.argsort(-scores, kind="stable")[:k].tolist()


# Draws


def test_the_same_seed_and_index_draw_the_same_token_and_others_differ():
    logits = random_logits(1000)
    sampling = Sampling(temperature=1.5, seed=3)
    first = [choose(logits, sampling, recent=(), n=n).token for n in range(50)]
    assert [choose(logits, sampling, recent=(), n=n).token for n in reversed(range(50))] == first[::-1]
    other = [choose(logits, Sampling(temperature=1.5, seed=4), recent=(), n=n).token for n in range(50)]
    assert first != other


def test_the_stream_of_a_seed_never_changes():
    # A change here changes the text of every seeded request.
    stream = [random_bits(0, 0) / 2**53, random_bits(0, 1) / 2**53, random_bits(2**64 - 1, 12345) / 2**53]
    assert stream == [0.011546754286331562, 0.5023796042735054, 0.6417259393325557]


@SETTINGS
@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_the_stream_is_numpys_philox(seed, n):
    assert random_bits(seed, n) == int(np.random.Philox(key=seed, counter=n).random_raw()) >> 11


def test_uniform_numbers_are_uniform_along_draws_and_along_seeds():
    n = 3000
    for numbers in ([random_bits(7, i) / 2**53 for i in range(n)], [random_bits(i, 0) / 2**53 for i in range(n)]):
        ordered = np.sort(numbers)
        assert ordered[0] >= 0
        assert ordered[-1] < 1
        # Kolmogorov–Smirnov: 1.95 / sqrt(n) is the 99.9 % quantile.
        assert np.abs(ordered - (np.arange(n) + 0.5) / n).max() < 1.95 / n**0.5


@pytest.mark.parametrize(
    ("sampling", "quantile"),
    [
        (Sampling(temperature=1.0), 37.7),
        (Sampling(temperature=0.7, top_k=8), 24.3),
        (Sampling(temperature=1.3, top_p=0.8), 37.7),
        (Sampling(temperature=1.0, min_p=0.1), 37.7),
    ],
)
def test_draws_follow_the_distribution(sampling, quantile):
    """Chi-squared of 2,000 draws against the analytical distribution; the quantiles are those of 99.9 %."""
    logits = (np.random.default_rng(1).standard_normal(16)).astype(np.float32)
    expected = filtered_by_sorting(logits, sampling)
    n = 2000
    counts = dict.fromkeys(expected, 0)
    for i in range(n):
        counts[choose(logits, sampling, recent=(), n=i).token] += 1
    assert sum((counts[t] - n * p) ** 2 / (n * p) for t, p in expected.items()) < quantile


def test_a_token_of_probability_zero_is_never_drawn():
    weights = np.array([0, 1 << 40, 0, 2 << 40, 0])
    assert index_at(weights, 0) == 1
    assert index_at(weights, 2**53 // 3) == 1
    assert index_at(weights, 2**53 // 3 + 1) == 3
    assert index_at(weights, 2**53 - 1) == 3


# Log probabilities


def test_logprobs_are_those_of_the_raw_logits():
    logits = random_logits(2000)
    exact = logits.astype(np.float64) - np.log(np.exp(logits.astype(np.float64)).sum())
    sampling = Sampling(temperature=0.5, top_k=5, logit_bias={0: 3.0}, repeat_penalty=1.5, n_logprobs=4)
    choice = choose(logits, sampling, recent=[1, 2], n=0)
    assert choice.logprob == pytest.approx(exact[choice.token], abs=1e-5)
    best = np.argsort(-logits, kind="stable")[:4]
    assert [token for token, _ in choice.top] == best.tolist()
    assert [logprob for _, logprob in choice.top] == pytest.approx(exact[best].tolist(), abs=1e-5)


def test_logprobs_may_be_of_the_chosen_token_only_or_of_more_than_there_are():
    logits = logits_of(1, 2, 3)
    assert choose(logits, Sampling(), recent=(), n=0).logprob is None
    assert choose(logits, Sampling(n_logprobs=0), recent=(), n=0).top == ()
    assert [token for token, _ in choose(logits, Sampling(n_logprobs=20), recent=(), n=0).top] == [2, 1, 0]


def test_asking_for_logprobs_does_not_change_the_token():
    logits = random_logits(300)
    for n in range(20):
        plain = choose(logits, Sampling(temperature=1.2, seed=5), recent=(), n=n)
        asked = choose(logits, Sampling(temperature=1.2, seed=5, n_logprobs=5), recent=(), n=n)
        assert plain.token == asked.token


# Broken logits


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(temperature=1.0, top_k=5)])
def test_logits_that_are_not_finite_are_an_error(bad, sampling):
    logits = random_logits(500)
    logits[321] = bad
    with pytest.raises(BadLogits):
        choose(logits, sampling, recent=(), n=0)


def test_the_whole_range_of_float32_is_drawn_from_without_a_warning():
    logits = logits_of(3e38, -3e38, 3e38)
    sampling = Sampling(temperature=1.0, n_logprobs=2)
    assert {choose(logits, sampling, recent=(), n=n).token for n in range(20)} == {0, 2}
