import attrs
import pytest

from hipfire.config.schema import Generation
from hipfire.errors import ContextLengthExceeded, InvalidRequest
from hipfire.service.request import SamplingWishes
from hipfire.service.sampling import fit_max_tokens, refuse_hopeless_length, resolve_sampling
from hipfire.wire.messages import Sampling

DEFAULTS = Generation(
    temperature=0.5, top_p=0.6, top_k=7, min_p=0.1, repeat_penalty=1.2, presence_penalty=0.3, frequency_penalty=0.4
)


def resolved(wishes: SamplingWishes) -> Sampling:
    return resolve_sampling(wishes, DEFAULTS, n_vocab=100, draw_seed=lambda: 42)


def test_what_is_left_open_comes_from_the_settings() -> None:
    assert resolved(SamplingWishes()) == Sampling(
        temperature=0.5,
        top_p=0.6,
        top_k=7,
        min_p=0.1,
        repeat_penalty=1.2,
        presence_penalty=0.3,
        frequency_penalty=0.4,
        seed=42,
    )


def test_wishes_win_also_when_they_are_zero() -> None:
    wishes = SamplingWishes(
        temperature=0.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        repeat_penalty=1.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        seed=0,
        logit_bias={99: 1.0},
        n_logprobs=0,
    )
    assert resolved(wishes) == Sampling(logit_bias={99: 1.0}, n_logprobs=0)


def test_top_k_minus_one_is_off() -> None:
    assert resolved(SamplingWishes(top_k=-1)).top_k == 0


def test_a_bias_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(InvalidRequest, match=r"logit_bias\.100: .*has 100") as caught:
        resolved(SamplingWishes(logit_bias={1: 1.0, 100: 1.0}))
    assert caught.value.param == "logit_bias.100"


@pytest.mark.parametrize(("wished", "default", "fitted"), [(None, 50, 50), (None, 200, 90), (1, 50, 1), (90, 50, 90)])
def test_an_answer_fits_what_is_left(wished: int | None, default: int, fitted: int) -> None:
    assert fit_max_tokens(wished, default, n_prompt=10, context_length=100) == fitted


@pytest.mark.parametrize(("wished", "n_prompt"), [(91, 10), (None, 100), (1, 100), (None, 1000)])
def test_what_does_not_fit_is_refused_with_both_counts(wished: int | None, n_prompt: int) -> None:
    with pytest.raises(ContextLengthExceeded, match=rf"prompt has {n_prompt} tokens.* 100"):
        fit_max_tokens(wished, 50, n_prompt=n_prompt, context_length=100)


def test_an_argmax_that_is_asked_for_is_bent_by_no_default():
    defaults = attrs.evolve(DEFAULTS, repeat_penalty=1.1, presence_penalty=0.2, frequency_penalty=0.3)
    asked = SamplingWishes(temperature=0.0)
    plain = resolve_sampling(asked, defaults, n_vocab=100, draw_seed=lambda: 42)
    assert (plain.repeat_penalty, plain.presence_penalty, plain.frequency_penalty) == (1.0, 0.0, 0.0)
    wished = resolve_sampling(attrs.evolve(asked, frequency_penalty=0.5), defaults, n_vocab=100, draw_seed=lambda: 42)
    assert (wished.repeat_penalty, wished.frequency_penalty) == (1.0, 0.5)
    recommended = attrs.evolve(defaults, temperature=0.0)
    kept = resolve_sampling(SamplingWishes(), recommended, n_vocab=100, draw_seed=lambda: 42)
    assert (kept.repeat_penalty, kept.frequency_penalty) == (1.1, 0.3)


def test_text_that_cannot_fit_is_refused_unread():
    refuse_hopeless_length(9 * 10, longest_token=10, context_length=10)
    with pytest.raises(ContextLengthExceeded, match="91 characters, at least 10 tokens, and the context holds 10"):
        refuse_hopeless_length(91, longest_token=10, context_length=10)
