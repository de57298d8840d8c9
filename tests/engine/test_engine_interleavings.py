"""Whatever comes when: every request ends in exactly one terminal message, and says what it would say alone."""

import random

import pytest
from engine_harness import Harness, alone, request
from scripted_device import N_VOCAB, ScriptedDevice

from hipfire.errors import DeviceError
from hipfire.wire.messages import Cancel, Failed, Finished, Generate, Sampling, ToEngine

SAMPLINGS = (
    Sampling(),
    Sampling(temperature=0.8, seed=7, top_k=5, top_p=0.9),
    Sampling(temperature=1.5, seed=8, repeat_penalty=1.3, frequency_penalty=0.2, penalty_window=3),
)


def random_request(rng: random.Random, id_: str) -> Generate:
    return request(
        id_,
        *rng.choices(range(N_VOCAB), k=rng.randint(1, 14)),
        max_tokens=rng.randint(1, 8),
        stop_ids=tuple(rng.choices(range(N_VOCAB), k=rng.randint(0, 2))),
        sampling=rng.choice(SAMPLINGS),
    )


def random_events(rng: random.Random, asked: list[Generate]) -> list[ToEngine]:
    """The requests in order, and cancels anywhere: some come before their request or after its end."""
    events: list[ToEngine] = list(asked)
    for _ in range(rng.randint(0, len(asked))):
        events.insert(rng.randint(0, len(events)), Cancel(id=rng.choice(asked).id))
    return events


class Story:
    """Posts events between steps and in the middle of them, and makes the device fail now and then."""

    def __init__(self, rng: random.Random, events: list[ToEngine], *, failure_rate: float) -> None:
        self._rng = rng
        self._events = events
        self._failure_rate = failure_rate
        self._harness = Harness(
            ScriptedDevice(hook=self._in_step),
            max_concurrent=rng.randint(1, 4),
            max_step_tokens=rng.choice([4, 7, 512]),
            n_kept=rng.randint(0, 3),
        )

    def play(self) -> Harness:
        while self._events:
            self._post()
            self._harness.turn()
        self._harness.settle()
        return self._harness

    def _post(self) -> None:
        for _ in range(min(self._rng.randint(0, 2), len(self._events))):
            self._harness.inbox.put(self._events.pop(0))

    def _in_step(self, step: object, cancel: object) -> None:
        self._post()
        if self._rng.random() < self._failure_rate:
            raise DeviceError("scripted")


def play(seed: int) -> tuple[list[Generate], Harness]:
    rng = random.Random(seed)
    asked = [random_request(rng, f"r{i}") for i in range(rng.randint(1, 7))]
    return asked, Story(rng, random_events(rng, asked), failure_rate=rng.choice([0, 0.1])).play()


@pytest.mark.parametrize("seed", range(80))
def test_every_request_ends_once_and_says_what_it_would_say_alone(seed):
    asked, harness = play(seed)
    for one in asked:
        end = harness.end(one.id)
        tokens, expected = harness.tokens(one.id), alone(one)
        if isinstance(end, Finished):
            assert tokens == expected
            assert end.n_generated == len(tokens)
        else:
            assert tokens == expected[: len(tokens)]
        if isinstance(end, Failed):
            assert end.message == "scripted"


def test_the_stories_are_worth_telling():
    """Together they have every kind of end, and many shared steps."""
    ends, n_shared = set(), 0
    for seed in range(20):
        asked, harness = play(seed)
        ends |= {type(harness.end(one.id)) for one in asked}
        n_shared += sum(len(set(step.slots.tolist())) > 1 for step in harness.executable.steps)
    assert len(ends) == 3
    assert n_shared > 50
