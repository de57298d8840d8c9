import pytest
from engine_harness import Harness, alone, request
from scripted_device import N_VOCAB, ScriptedDevice, counting, hashed

from hipfire.errors import OutOfMemory
from hipfire.wire.messages import (
    Cancel,
    Cancelled,
    Failed,
    Finished,
    Load,
    Loaded,
    LoadFailed,
    LoadProgress,
    Sampling,
    Token,
    Unload,
    Unloaded,
)

# Generating


def test_tokens_come_one_by_one_and_then_the_end():
    harness = Harness(ScriptedDevice(counting))
    harness.settle(request("a", 3, 4, 5, max_tokens=3))
    assert harness.tokens("a") == [6, 7, 8]
    end = harness.end("a")
    assert isinstance(end, Finished)
    assert (end.reason, end.n_prompt, end.n_cached, end.n_generated) == ("length", 3, 0, 3)


def test_a_stop_token_ends_the_answer():
    harness = Harness(ScriptedDevice(counting))
    harness.settle(request("a", 3, max_tokens=10, stop_ids=(6,)))
    assert harness.tokens("a") == [4, 5]
    assert harness.end("a").reason == "stop"


def test_the_answer_ends_when_the_context_is_full():
    harness = Harness(ScriptedDevice(counting), context_length=8)
    harness.settle(request("a", 1, 2, 3, max_tokens=100))
    assert len(harness.tokens("a")) == 5
    assert harness.end("a").reason == "length"


def test_log_probabilities_come_with_the_tokens():
    harness = Harness(ScriptedDevice(counting))
    harness.settle(request("a", 3, max_tokens=1, sampling=Sampling(n_logprobs=1)))
    (token,) = (message for message in harness.said if isinstance(message, Token))
    assert token.top == ((4, token.logprob),)


def test_the_seed_decides_and_the_position_in_the_answer_counts():
    def generate(seed: int) -> list[int]:
        return alone(request("a", 1, max_tokens=20, sampling=Sampling(temperature=1.0, seed=seed)))

    assert generate(1) == generate(1) != generate(2)


def test_a_prompt_longer_than_a_step_comes_in_chunks():
    harness = Harness(ScriptedDevice(counting), max_step_tokens=8)
    harness.settle(request("a", *[1] * 21, max_tokens=1))
    assert [len(step.token_ids) for step in harness.executable.steps] == [8, 8, 5]
    assert [len(step.output_rows) for step in harness.executable.steps] == [0, 0, 1]
    assert harness.tokens("a") == [2]


# Several at once


def test_sequences_share_steps_and_say_what_they_would_say_alone():
    asked = [request(id_, *prompt, max_tokens=6) for id_, prompt in (("a", [1, 2]), ("b", [3]), ("c", [4, 5, 6]))]
    harness = Harness(max_concurrent=3)
    harness.settle(*asked)
    assert [len(step.token_ids) for step in harness.executable.steps] == [6, 3, 3, 3, 3, 3]
    for one in asked:
        assert harness.tokens(one.id) == alone(one)


def test_sequences_beyond_the_slots_wait_their_turn():
    harness = Harness(ScriptedDevice(counting), max_concurrent=2)
    harness.settle(*(request(id_, 1, max_tokens=2) for id_ in "abcd"))
    ends = [message.id for message in harness.said if isinstance(message, Finished)]
    assert ends == ["a", "b", "c", "d"]
    assert max(len(step.token_ids) for step in harness.executable.steps) == 2


def test_a_step_has_a_row_for_every_slot_however_short_the_context():
    harness = Harness(ScriptedDevice(counting), max_concurrent=3, context_length=2)
    harness.settle(*(request(id_, 3) for id_ in "abc"))
    assert [harness.tokens(id_) for id_ in "abc"] == [[4], [4], [4]]
    assert len(harness.executable.steps) == 1


def test_a_long_prompt_does_not_stop_those_that_decode():
    harness = Harness(max_concurrent=2, max_step_tokens=8)
    harness.turn(request("a", 1, max_tokens=50))
    n_steps = 0
    harness.turn(request("b", *[2] * 20, max_tokens=1))
    before = len(harness.tokens("a"))
    while not harness.ends("b"):
        harness.turn()
        n_steps += 1
    assert len(harness.tokens("a")) == before + n_steps
    assert max(len(step.token_ids) for step in harness.executable.steps) == 1 + 2


def test_a_slot_is_used_again_without_a_trace():
    harness = Harness()
    first, second = request("a", 1, 2, 3, 4, max_tokens=8), request("b", 5, max_tokens=8)
    harness.settle(first, second)
    assert harness.tokens("b") == alone(second)


# Refusing


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (request("a"), "invalid_request"),
        (request("a", 1, N_VOCAB), "invalid_request"),
        (request("a", 1, -1), "invalid_request"),
        (request("a", 1, max_tokens=0), "invalid_request"),
        (request("a", *[1] * 64), "context_length_exceeded"),
        (request("a", 1, sampling=Sampling(temperature=-1.0)), "invalid_request"),
    ],
)
def test_a_request_that_cannot_run_fails_and_runs_nothing(asked, code):
    harness = Harness()
    harness.settle(asked)
    assert harness.end("a").code == code
    assert harness.executable.steps == []


def test_without_a_model_a_request_fails():
    harness = Harness(load=False)
    harness.settle(request("a", 1))
    assert harness.end("a") == Failed(id="a", code="engine_unavailable", message="no model is loaded")


def test_an_id_in_use_is_refused_and_its_owner_goes_on():
    harness = Harness(ScriptedDevice(counting))
    harness.turn(request("a", 1), request("b", 1))
    harness.settle(request("a", 9), request("b", 9))
    for id_ in "ab":
        assert [type(end) for end in harness.ends(id_)] == [Failed, Finished]
        assert harness.tokens(id_) == [2, 3, 4, 5]


def test_an_id_may_be_used_again_after_its_end():
    harness = Harness(ScriptedDevice(counting))
    harness.settle(request("a", 1))
    harness.settle(request("a", 1))
    assert [type(end) for end in harness.ends("a")] == [Finished, Finished]


# Cancelling


def test_cancel_between_steps():
    harness = Harness(max_concurrent=2)
    harness.turn(request("a", 1), request("b", 2))
    harness.settle(Cancel(id="a"))
    assert harness.end("a") == Cancelled(id="a", n_generated=1)
    assert harness.tokens("b") == alone(request("b", 2))


def test_cancel_of_one_that_waits():
    harness = Harness()
    harness.turn(request("a", 1), request("b", 2))
    harness.settle(Cancel(id="b"))
    assert harness.end("b") == Cancelled(id="b", n_generated=0)
    assert isinstance(harness.end("a"), Finished)


def test_cancel_together_with_its_request():
    harness = Harness()
    harness.settle(request("a", 1), Cancel(id="a"))
    assert harness.end("a") == Cancelled(id="a", n_generated=0)
    assert harness.executable.steps == []


def test_cancel_of_the_unknown_and_of_the_ended_is_ignored():
    harness = Harness()
    harness.settle(Cancel(id="nobody"))
    harness.settle(request("a", 1))
    n_said = len(harness.said)
    harness.settle(Cancel(id="a"), Cancel(id="a"))
    assert len(harness.said) == n_said


class CancelsInStep(ScriptedDevice):
    """Posts a Cancel in the middle of the step with this number, counted from 0."""

    def __init__(self, number: int, *ids: str) -> None:
        super().__init__(hashed)
        self.number = number
        self.ids = ids
        self.harness: Harness | None = None
        self.hook = self._cancel

    def _cancel(self, step, cancel) -> None:
        if len(self.loaded[-1].steps) - 1 == self.number:
            for id_ in self.ids:
                self.harness.inbox.put(Cancel(id=id_))


def cancelled_in_step(number: int, *ids: str, max_concurrent: int = 2) -> Harness:
    device = CancelsInStep(number, *ids)
    device.harness = Harness(device, max_concurrent=max_concurrent)
    return device.harness


def test_cancel_in_the_middle_of_its_own_step_breaks_it_off():
    harness = cancelled_in_step(1, "a")
    harness.settle(request("a", 1, max_tokens=9))
    assert harness.end("a") == Cancelled(id="a", n_generated=1)
    assert len(harness.executable.steps) == 2


def test_cancel_of_a_prompt_breaks_the_step_off_and_the_others_rows_are_run_again():
    harness = cancelled_in_step(1, "b")
    a, b = request("a", 1, max_tokens=5), request("b", 2, 3, 4)
    harness.turn(a)
    harness.settle(b)
    assert harness.end("b") == Cancelled(id="b", n_generated=0)
    assert harness.tokens("a") == alone(a)
    first, again = harness.executable.steps[1:3]
    assert len(first.token_ids) == 4
    assert again.token_ids.tolist() == first.token_ids[:1].tolist()
    assert again.positions.tolist() == first.positions[:1].tolist()


def test_cancel_of_one_that_decodes_lets_the_step_end():
    harness = cancelled_in_step(2, "b")
    a, b = request("a", 1, max_tokens=5), request("b", 2, max_tokens=5)
    harness.settle(a, b)
    assert harness.end("b") == Cancelled(id="b", n_generated=3)
    assert harness.tokens("b") == alone(b)[:3]
    assert harness.tokens("a") == alone(a)
    assert len(harness.executable.steps) == 5


def test_cancel_of_all_that_decode_breaks_the_step_off():
    harness = cancelled_in_step(2, "b", "a")
    harness.settle(request("a", 1, max_tokens=5), request("b", 2, max_tokens=5))
    assert harness.end("a") == Cancelled(id="a", n_generated=2)
    assert harness.end("b") == Cancelled(id="b", n_generated=2)
    assert len(harness.executable.steps) == 3


# Loading


def test_loading_tells_its_progress_and_what_was_chosen():
    harness = Harness(max_concurrent=2, context_length=48)
    *progress, loaded = harness.said
    assert all(isinstance(message, LoadProgress) for message in progress)
    assert [message.fraction for message in progress] == sorted({message.fraction for message in progress})
    assert progress[-1].fraction == 1
    assert loaded == Loaded(
        path="scripted",
        architecture="scripted",
        device="scripted (1 thread)",
        native=True,
        n_vocab=N_VOCAB,
        context_length=48,
        kv_cache="f32",
        memory_nbytes=1 << 20,
        load_ms=loaded.load_ms,
    )
    assert loaded.load_ms > 0


def test_the_context_is_what_memory_allows():
    device = ScriptedDevice(position_nbytes=1 << 20, free_nbytes=1 << 30)
    harness = Harness(device, context_length=1000)
    assert harness.said[-1].context_length == 768
    assert harness.executable.limits.max_seq == 768


def test_a_context_that_was_asked_for_and_does_not_fit_is_refused():
    harness = Harness(ScriptedDevice(position_nbytes=1 << 20, free_nbytes=1 << 30), load=False)
    harness.turn(Load(path="m", max_seq=2000))
    (failed,) = harness.said
    assert isinstance(failed, LoadFailed)
    assert failed.code == "out_of_memory"


@pytest.mark.parametrize("load", [Load(path="m", max_concurrent=0), Load(path="m", max_seq=0)])
def test_a_load_of_nothing_is_refused(load):
    harness = Harness(load=False)
    harness.turn(load)
    assert [message.code for message in harness.said] == ["invalid_request"]


def test_a_load_that_fails_leaves_no_model_and_the_next_one_may_succeed():
    device = ScriptedDevice()
    harness = Harness(device)
    first = harness.executable
    device.load, load = raising(OutOfMemory("full")), device.load
    harness.settle(Load(path="m"), request("a", 1))
    assert first.is_closed
    assert LoadFailed(path="m", code="out_of_memory", message="full") in harness.said
    assert harness.end("a").code == "engine_unavailable"
    device.load = load
    harness.settle(Load(path="m"), request("b", 1))
    assert isinstance(harness.end("b"), Finished)


def raising(error):
    def load(*args, **kwargs):
        raise error

    return load


def test_loading_fails_what_runs_and_what_waits_and_frees_the_old_model():
    harness = Harness()
    harness.turn(request("runs", 1), request("waits", 1))
    old = harness.executable
    harness.settle(Load(path="other"))
    assert old.is_closed
    assert harness.end("runs").code == harness.end("waits").code == "engine_unavailable"
    assert harness.said[-1].path == "other"


def test_unloading_fails_what_runs_and_what_waits():
    harness = Harness()
    harness.turn(request("runs", 1), request("waits", 1))
    harness.settle(Unload(), request("late", 1))
    assert harness.executable.is_closed
    assert {harness.end(id_).code for id_ in ("runs", "waits", "late")} == {"engine_unavailable"}
    assert harness.said.count(Unloaded()) == 1


def test_unloading_nothing_is_answered_too():
    harness = Harness(load=False)
    harness.turn(Unload())
    assert harness.said == [Unloaded()]


def test_closing_the_inbox_ends_the_run_and_frees_the_model():
    harness = Harness()
    harness.inbox.close()
    harness.engine.run()
    assert harness.executable.is_closed


def test_busy_since_is_set_in_a_step_only():
    device = ScriptedDevice(counting)
    harness = Harness(device)
    seen = []
    device.hook = lambda step, cancel: seen.append(harness.engine.busy_since)
    harness.settle(request("a", 1, max_tokens=2))
    assert len(seen) == 2
    assert None not in seen
    assert harness.engine.busy_since is None
