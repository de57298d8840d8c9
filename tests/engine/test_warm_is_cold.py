"""With a real model: an answer is the same with a state that was kept as without any, to the last bit of its logits."""

import random
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from engine_harness import Harness
from engine_harness import request as a_request
from hypothesis import given, settings
from hypothesis import strategies as st
from interrupted_device import InterruptedDevice

from hipfire.devices.cpu import CpuDevice
from hipfire.engine.loader import Loader
from hipfire.wire.messages import Cancel, Cancelled, Finished, Generate, Load, Sampling, Token

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "tiny-llama" / "model.gguf"
N_VOCAB = 512
SLOT_NBYTES = {"q16": 512 * 2 * 2 * 2 * (16 * 2 + 2), "f32": 512 * 2 * 16 * 2 * 2 * 4}
"""512 positions of 2 heads of 16 elements, keys and values, in 2 layers."""


def greedy(id_: str, prompt: tuple[int, ...], max_tokens: int) -> Generate:
    return a_request(id_, *prompt, max_tokens=max_tokens, sampling=Sampling(n_logprobs=5))


class TinyEngine(Harness):
    """The tiny model on the CPU."""

    def __init__(
        self,
        *,
        kv_cache: str,
        prefix_cache: bool = True,
        max_concurrent: int = 1,
        n_kept: int = 0,
        max_step_tokens: int = 512,
    ) -> None:
        device = InterruptedDevice(CpuDevice.open(1))
        loader = Loader(max_step_tokens=max_step_tokens, open_device=lambda name, *, n_threads: device)
        super().__init__(loader=loader, load=False)
        self.turn(
            Load(
                path=str(TINY),
                kv_cache=kv_cache,
                max_concurrent=max_concurrent,
                prefix_cache=prefix_cache,
                prefix_cache_nbytes=n_kept * SLOT_NBYTES[kv_cache],
            )
        )
        self.real = device.loaded[-1]

    def said_of(self, id_: str) -> list[Token]:
        """Tokens with their log probabilities, whatever the id."""
        return [attrs.evolve(said, id="") for said in self.said if isinstance(said, Token) and said.id == id_]

    def so_far(self, asked: Generate) -> tuple[int, ...]:
        return (*asked.prompt, *self.tokens(asked.id))

    def cancel_in_step(self, id_: str, number: int) -> None:
        """Cancel it in the middle of the step with this number, counted from 1 and from now."""
        left = number

        def count() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                self.inbox.put(Cancel(id=id_))

        self.real.before_step = count

    def close(self) -> None:
        self.inbox.close()
        self.engine.run()


class Cold:
    """Answers, each from an empty state."""

    def __init__(self, kv_cache: str) -> None:
        self.kv_cache = kv_cache
        self.engine = TinyEngine(kv_cache=kv_cache, prefix_cache=False)
        self._answers: dict[tuple[tuple[int, ...], int], list[Token]] = {}

    def answer(self, asked: Generate) -> list[Token]:
        key = asked.prompt, asked.max_tokens
        if key not in self._answers:
            id_ = f"cold {len(self._answers)}"
            self.engine.settle(attrs.evolve(asked, id=id_))
            end = self.engine.end(id_)
            assert isinstance(end, Finished)
            assert end.n_cached == 0
            self._answers[key] = self.engine.said_of(id_)
        return self._answers[key]


@pytest.fixture(scope="module", params=["q16", "f32"])
def cold(request: pytest.FixtureRequest) -> Iterator[Cold]:
    made = Cold(request.param)
    yield made
    made.engine.close()


def assert_as_cold(warm: TinyEngine, asked: Generate, cold: Cold) -> None:
    said, expected = warm.said_of(asked.id), cold.answer(asked)
    if isinstance(warm.end(asked.id), Cancelled):
        assert said == expected[: len(said)]
    else:
        assert isinstance(warm.end(asked.id), Finished)
        assert said == expected


@pytest.mark.parametrize("n_kept", [0, 2])
def test_twenty_turns_with_edits_and_cancelled_ones(cold, n_kept):
    warm = TinyEngine(kv_cache=cold.kv_cache, n_kept=n_kept, max_step_tokens=16)
    assert warm.real.n_slots == 1 + n_kept
    rng = random.Random(11)
    so_far: tuple[int, ...] = ()
    n_cached = []
    for turn in range(20):
        if turn == 6:
            middle = len(so_far) // 2
            so_far = (*so_far[:middle], *rng.choices(range(N_VOCAB), k=3), *so_far[middle + 2 :])
        elif turn == 11:
            so_far = so_far[: len(so_far) // 3]
        asked = greedy(f"turn {turn}", (*so_far, *rng.choices(range(N_VOCAB), k=rng.randint(20, 26))), 6)
        if turn == 9:
            warm.cancel_in_step(asked.id, 4)
        elif turn == 14:
            warm.cancel_in_step(asked.id, 2)
        warm.settle(asked)
        assert_as_cold(warm, asked, cold)
        end = warm.end(asked.id)
        if isinstance(end, Finished):
            n_cached.append((turn, end.n_cached, len(so_far)))
        # A client that cancelled goes on from what it has seen, or repeats the turn.
        so_far = warm.so_far(asked) if warm.tokens(asked.id) else so_far
    cancelled = [warm.end(f"turn {turn}").n_generated for turn in (9, 14)]
    assert cancelled == [2, 0]
    assert warm.real.n_broken_off == 2
    after_an_edit = {0, 6}
    assert all(cached == n - 1 for turn, cached, n in n_cached if turn not in {*after_an_edit, 10, 11, 15})
    assert len(n_cached) == 18
    assert (warm.real.n_copies > 0) == (n_kept > 0)
    warm.close()


@attrs.frozen(kw_only=True)
class Move:
    """A request that goes on from an earlier one, cut to its first tokens, or from nothing; then some turns."""

    base: int
    cut: int
    new: list[int]
    max_tokens: int
    n_turns: int
    cancelled_in: int | None


MOVES = st.lists(
    st.builds(
        Move,
        base=st.integers(0, 8),
        cut=st.integers(1, 40),
        # Few tokens, so that prompts often begin alike.
        new=st.lists(st.sampled_from([3, 4, 5]), min_size=1, max_size=9),
        max_tokens=st.integers(1, 5),
        n_turns=st.integers(0, 6),
        cancelled_in=st.none() | st.integers(1, 5),
    ),
    min_size=2,
    max_size=9,
)


def play(warm: TinyEngine, moves: list[Move]) -> list[Generate]:
    asked: list[Generate] = []
    for move in moves:
        base = warm.so_far(asked[move.base % len(asked)])[: move.cut] if asked else ()
        asked.append(greedy(f"r{len(asked)}", (*base, *move.new), move.max_tokens))
        warm.inbox.put(asked[-1])
        if move.cancelled_in is not None:
            warm.cancel_in_step(asked[-1].id, move.cancelled_in)
        for _ in range(move.n_turns):
            warm.turn()
    warm.settle()
    return asked


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    moves=MOVES,
    max_concurrent=st.integers(1, 3),
    n_kept=st.integers(0, 3),
    max_step_tokens=st.sampled_from([3, 8, 512]),
)
def test_whatever_comes_when_is_as_cold(cold, moves, max_concurrent, n_kept, max_step_tokens):
    warm = TinyEngine(
        kv_cache=cold.kv_cache, max_concurrent=max_concurrent, n_kept=n_kept, max_step_tokens=max_step_tokens
    )
    try:
        for asked in play(warm, moves):
            assert_as_cold(warm, asked, cold)
    finally:
        warm.close()
