import pytest

from hipfire.engine.sampler import Choice
from hipfire.engine.sequence import Sequence
from hipfire.wire.messages import Cancelled, Failed, Finished, Generate, Sampling, SpanCap, Token


def sequence(*, max_tokens: int = 3, context_length: int = 100, **sampling: float) -> Sequence:
    request = Generate(id="a", prompt=(1, 2, 3), max_tokens=max_tokens, stop_ids=(9, 8), sampling=Sampling(**sampling))
    return Sequence(request, slot=0, context_length=context_length, now=10.0)


def test_a_token_is_told_with_its_log_probabilities():
    choice = Choice(token=5, logprob=-0.5, top=((5, -0.5), (6, -1.0)))
    assert sequence().take(choice, 11.0) == (Token(id="a", token=5, logprob=-0.5, top=((5, -0.5), (6, -1.0))),)


def test_max_tokens_ends_it():
    made = sequence(max_tokens=2)
    made.take(Choice(token=5), 12.0)
    token, finished = made.take(Choice(token=6), 15.0)
    assert token == Token(id="a", token=6)
    assert finished == Finished(
        id="a", reason="length", n_prompt=3, n_cached=0, n_generated=2, prompt_ms=2000.0, decode_ms=3000.0
    )
    assert made.has_ended


def test_a_full_context_ends_it():
    made = sequence(max_tokens=100, context_length=4)
    assert [type(message) for message in made.take(Choice(token=5), 11.0)] == [Token, Finished]


@pytest.mark.parametrize("stop", [8, 9])
def test_a_stop_token_ends_it_and_is_not_told(stop):
    made = sequence()
    made.take(Choice(token=5), 11.0)
    (finished,) = made.take(Choice(token=stop), 12.0)
    assert isinstance(finished, Finished)
    assert (finished.reason, finished.n_generated) == ("stop", 1)


def test_a_stop_token_may_come_at_once():
    (finished,) = sequence().take(Choice(token=9), 12.0)
    assert isinstance(finished, Finished)
    assert (finished.n_generated, finished.prompt_ms, finished.decode_ms) == (0, 2000.0, 0.0)


def test_the_penalty_window_covers_prompt_and_answer():
    made = sequence(max_tokens=9, penalty_window=4)
    assert list(made.recent()) == [1, 2, 3]
    for token in (4, 5, 6):
        made.take(Choice(token=token), 11.0)
    assert list(made.recent()) == [3, 4, 5, 6]


def test_a_window_of_zero_sees_nothing():
    assert list(sequence(penalty_window=0).recent()) == []


def test_failing_and_cancelling_end_it():
    failed, cancelled = sequence(), sequence()
    cancelled.take(Choice(token=5), 11.0)
    assert failed.fail("device_error", "broken") == Failed(id="a", code="device_error", message="broken")
    assert cancelled.cancel() == Cancelled(id="a", n_generated=1)
    assert failed.has_ended
    assert cancelled.has_ended


def test_a_cap_puts_its_own_tokens_in_place_of_those_chosen():
    cap = SpanCap(max_tokens=1, open_ids=(), close_ids=(7,), forced_ids=(6, 7))
    request = Generate(id="a", prompt=(1,), max_tokens=9, stop_ids=(9,), sampling=Sampling(n_logprobs=0), cap=cap)
    made = Sequence(request, slot=0, context_length=100, now=10.0)
    # A token that would end the answer is no exception.
    told = [made.take(Choice(token=token, logprob=-1.0), 11.0) for token in (4, 9, 5, 3)]
    assert [(message.token, message.logprob) for (message,) in told] == [(4, -1.0), (6, None), (7, None), (3, -1.0)]
    assert made.tokens == [1, 4, 6, 7, 3]
