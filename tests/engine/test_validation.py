import attrs
import pytest

from hipfire.engine.validation import check_request
from hipfire.errors import ContextLengthExceeded, InvalidRequest
from hipfire.wire.messages import Generate, Sampling

REQUEST = Generate(id="a", prompt=(0, 9), max_tokens=1, stop_ids=(), sampling=Sampling())


def check(request: Generate, *, context_length: int = 8) -> None:
    check_request(request, n_vocab=10, context_length=context_length)


def test_a_good_request_passes():
    check(REQUEST)
    extremes = Sampling(
        temperature=2.0, top_k=1000, top_p=1.0, min_p=1.0, seed=2**64 - 1, n_logprobs=20, logit_bias={9: -100.0}
    )
    check(attrs.evolve(REQUEST, sampling=extremes))


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"prompt": ()}, "prompt"),
        ({"prompt": (1, 10)}, "prompt"),
        ({"prompt": (-1,)}, "prompt"),
        ({"prompt": (1 << 40,)}, "prompt"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_a_prompt_or_count_that_cannot_be_is_refused(changes, param):
    with pytest.raises(InvalidRequest) as caught:
        check(attrs.evolve(REQUEST, **changes))
    assert caught.value.param == param


def test_the_message_names_the_token_at_fault():
    with pytest.raises(InvalidRequest, match="token 11 is not in the vocabulary of 10"):
        check(attrs.evolve(REQUEST, prompt=(1, 11, 12)))


def test_a_prompt_must_leave_room_for_a_token():
    check(REQUEST, context_length=3)
    with pytest.raises(ContextLengthExceeded, match="2 tokens and the context holds 2"):
        check(REQUEST, context_length=2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("temperature", -0.1),
        ("temperature", float("nan")),
        ("temperature", float("inf")),
        ("top_k", -1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("min_p", 1.5),
        ("repeat_penalty", 0.0),
        ("presence_penalty", float("inf")),
        ("frequency_penalty", float("nan")),
        ("penalty_window", -1),
        ("seed", -1),
        ("seed", 2**64),
        ("n_logprobs", 21),
        ("n_logprobs", -1),
        ("logit_bias", {10: 1.0}),
        ("logit_bias", {-1: 1.0}),
        ("logit_bias", {1: float("inf")}),
    ],
)
def test_sampling_out_of_range_is_refused(field, value):
    with pytest.raises(InvalidRequest) as caught:
        check(attrs.evolve(REQUEST, sampling=attrs.evolve(Sampling(), **{field: value})))
    assert caught.value.param == field
