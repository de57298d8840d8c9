import math

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from hipfire.errors import EngineUnavailable, ServerBusy
from hipfire.service.admission import Admission


def an_admission(*, max_concurrent: int = 1, max_queue: int = 2, queue_timeout_s: float = 0) -> Admission:
    return Admission(max_concurrent=max_concurrent, max_queue=max_queue, queue_timeout_s=queue_timeout_s)


class Visitor:
    """Enters, and stays in its place until it is told to leave."""

    def __init__(self, admission: Admission) -> None:
        self.admission = admission
        self.leave = trio.Event()
        self.turn_at = math.nan
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope, self.admission.enter() as place:
            await place.turn()
            self.turn_at = trio.current_time()
            await self.leave.wait()


async def visitors(admission: Admission, nursery: trio.Nursery, n: int) -> list[Visitor]:
    made = [Visitor(admission) for _ in range(n)]
    for visitor in made:
        nursery.start_soon(visitor.run)
        await wait_all_tasks_blocked()
    return made


def have_turn(made: list[Visitor]) -> list[bool]:
    return [not math.isnan(visitor.turn_at) for visitor in made]


async def test_first_come_first_served() -> None:
    admission = an_admission()
    async with trio.open_nursery() as nursery:
        made = await visitors(admission, nursery, 3)
        assert have_turn(made) == [True, False, False]
        assert (admission.n_running, admission.n_waiting) == (1, 2)
        for n, visitor in enumerate(made, 1):
            visitor.leave.set()
            await wait_all_tasks_blocked()
            assert sum(have_turn(made)) == min(n + 1, 3)
    assert (admission.n_running, admission.n_waiting) == (0, 0)


async def test_several_at_a_time() -> None:
    admission = an_admission(max_concurrent=2)
    async with trio.open_nursery() as nursery:
        made = await visitors(admission, nursery, 3)
        assert have_turn(made) == [True, True, False]
        made[1].leave.set()
        await wait_all_tasks_blocked()
        assert have_turn(made) == [True, True, True]
        nursery.cancel_scope.cancel()


async def test_a_full_queue_turns_away_at_once() -> None:
    admission = an_admission(max_queue=1)
    async with trio.open_nursery() as nursery:
        await visitors(admission, nursery, 2)
        with pytest.raises(ServerBusy, match="all 1 places") as caught:
            admission.enter()
        assert caught.value.retry_after_s >= 1
        nursery.cancel_scope.cancel()


async def test_no_bound_where_max_queue_is_zero() -> None:
    admission = an_admission(max_queue=0)
    async with trio.open_nursery() as nursery:
        await visitors(admission, nursery, 100)
        assert admission.n_waiting == 99
        nursery.cancel_scope.cancel()


async def test_who_goes_while_waiting_frees_the_place_at_once() -> None:
    admission = an_admission()
    async with trio.open_nursery() as nursery:
        made = await visitors(admission, nursery, 3)
        made[1].scope.cancel()
        await wait_all_tasks_blocked()
        assert admission.n_waiting == 1
        made[0].scope.cancel()
        await wait_all_tasks_blocked()
        assert have_turn(made) == [True, False, True]
        nursery.cancel_scope.cancel()


async def test_who_goes_just_when_its_turn_comes_passes_it_on() -> None:
    admission = an_admission()
    async with trio.open_nursery() as nursery:
        made = await visitors(admission, nursery, 3)
        made[0].leave.set()
        made[1].scope.cancel()
        await wait_all_tasks_blocked()
        assert have_turn(made) == [True, False, True]
        nursery.cancel_scope.cancel()


async def test_waiting_ends_after_the_timeout(autojump_clock: MockClock) -> None:
    admission = an_admission(queue_timeout_s=60)
    async with trio.open_nursery() as nursery:
        (first,) = await visitors(admission, nursery, 1)
        began = trio.current_time()
        with pytest.raises(ServerBusy, match="waited 60 s"), admission.enter() as place:
            await place.turn()
        assert trio.current_time() - began == pytest.approx(60)
        assert admission.n_waiting == 0
        first.leave.set()


async def test_retry_after_follows_how_long_requests_take(autojump_clock: MockClock) -> None:
    admission = an_admission(max_queue=10)
    for _ in range(20):
        with admission.enter() as place:
            await place.turn()
            await trio.sleep(8)
    async with trio.open_nursery() as nursery:
        await visitors(admission, nursery, 3)
        # Two wait before it, one runs.
        assert admission.retry_after_s() == 24
        nursery.cancel_scope.cancel()


async def test_a_closed_queue_turns_everybody_away_who_has_no_turn() -> None:
    admission = an_admission()
    refused = []

    async def enter() -> None:
        try:
            with admission.enter() as place:
                await place.turn()
        except EngineUnavailable as error:
            refused.append(error)

    async with trio.open_nursery() as nursery:
        (first,) = await visitors(admission, nursery, 1)
        nursery.start_soon(enter)
        await wait_all_tasks_blocked()
        admission.close()
        nursery.start_soon(enter)
        await wait_all_tasks_blocked()
        assert len(refused) == 2
        assert admission.n_running == 1
        first.leave.set()
