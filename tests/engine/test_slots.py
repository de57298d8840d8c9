"""Which slot a prompt gets, and how much of it is there already."""

from collections.abc import Sequence as Tokens

import pytest

from hipfire.engine.sequence import Sequence
from hipfire.engine.state import Place, Slots
from hipfire.wire.messages import Generate, Sampling


def slots_with(*kept: Tokens[int], n: int | None = None, keeps: bool = True) -> Slots:
    """Slot i keeps the i-th tokens; the first was used least recently."""
    slots = Slots(n or len(kept), keeps=keeps)
    taken = [slots.take([99], ()) for _ in kept]
    for place, tokens in zip(taken, kept, strict=True):
        slots.release(place.slot, tokens)
    return slots


def running(slot: int, tokens: Tokens[int], *, n_evaluated: int) -> Sequence:
    request = Generate(id=f"in {slot}", prompt=tuple(tokens), max_tokens=9, stop_ids=(), sampling=Sampling())
    sequence = Sequence(request, slot=slot, context_length=100, now=0.0)
    sequence.n_evaluated = n_evaluated
    return sequence


def test_empty_slots_are_taken_from_the_first_on():
    slots = Slots(3)
    assert [slots.take([1, 2], ()) for _ in range(3)] == [Place(slot=slot, n_cached=0) for slot in range(3)]


def test_a_conversation_goes_on_where_it_was():
    slots = slots_with([1, 2, 3], [4, 5, 6])
    assert slots.take([4, 5, 6, 7], ()) == Place(slot=1, n_cached=3)
    assert slots.take([1, 2, 3, 8], ()) == Place(slot=0, n_cached=3)


@pytest.mark.parametrize("prompt", [[1, 2, 3], [1, 2, 3, 4], [1, 2, 9, 4]])
def test_the_last_token_is_evaluated_in_any_case(prompt):
    assert slots_with([1, 2, 3, 4]).take(prompt, ()).n_cached == min(len(prompt) - 1, 2 if 9 in prompt else 4)


def test_a_prompt_of_one_token_has_nothing_cached():
    assert slots_with([1, 2]).take([1], ()).n_cached == 0


def test_the_longest_prefix_wins_over_a_later_use():
    assert slots_with([1, 2, 3, 4], [1, 2]).take([1, 2, 3, 5], ()) == Place(slot=0, n_cached=3)


def test_with_equal_prefixes_the_slot_that_loses_least_is_taken():
    assert slots_with([1, 2, 7, 8], [1, 2, 9]).take([1, 2, 3], ()) == Place(slot=1, n_cached=2)


def test_without_a_match_an_empty_slot_is_taken_and_then_the_least_recently_used():
    slots = slots_with([1], [2], n=3)
    assert slots.take([9, 9], ()).slot == 2
    assert slots.take([9, 9], ()).slot == 0
    slots.release(2, [5])
    slots.release(0, [6])
    assert slots.take([9, 9], ()).slot == 1
    assert slots.take([9, 9], ()).slot == 2


def test_a_slot_that_would_lose_more_than_it_gives_is_copied_from():
    """Else two conversations that begin with the same instructions would drive each other out."""
    slots = slots_with([1, 2, 3, 4, 5], n=2)
    assert slots.take([1, 2, 8, 9], ()) == Place(slot=1, n_cached=2, copy_from=0)
    slots.release(1, [1, 2, 8, 9])
    assert slots.take([1, 2, 3, 4, 5, 6], ()) == Place(slot=0, n_cached=5)


def test_a_slot_that_loses_no_more_than_it_gives_is_taken_as_it_is():
    assert slots_with([1, 2, 3, 4], n=2).take([1, 2, 8, 9], ()) == Place(slot=0, n_cached=2)


def test_the_slot_to_be_spared_is_taken_as_it_is_where_it_has_the_prefix():
    assert slots_with([1, 2, 3, 4, 5], [7, 7]).take([1, 2, 9], ()) == Place(slot=0, n_cached=2)


def test_a_slot_in_use_is_copied_from_as_far_as_it_has_come():
    slots = slots_with([1, 2, 3], [1, 5])
    place = slots.take([1, 2, 3, 4, 5, 6, 7, 8], ())
    busy = running(place.slot, [1, 2, 3, 4, 5, 6, 7, 8], n_evaluated=5)
    assert slots.take([1, 2, 3, 4, 5, 6, 9], [busy]) == Place(slot=1, n_cached=5, copy_from=0)


def test_a_slot_in_use_is_not_copied_from_where_a_free_one_has_as_much():
    slots = slots_with([1, 2, 3], [1, 2, 3])
    busy = running(slots.take([1, 2, 3, 4], ()).slot, [1, 2, 3, 4], n_evaluated=3)
    assert slots.take([1, 2, 3, 4], [busy]) == Place(slot=1, n_cached=3)


def test_nothing_is_used_again_after_it_was_forgotten():
    slots = slots_with([1, 2, 3], [4, 5])
    slots.forget()
    assert slots.take([1, 2, 3, 4], ()).n_cached == 0


def test_without_keeping_nothing_is_used_again():
    slots = slots_with([1, 2, 3], [4, 5], keeps=False)
    assert slots.take([1, 2, 3, 4], ()) == Place(slot=0, n_cached=0)
    assert slots.take([1, 2, 3, 4], [running(0, [1, 2, 3, 4], n_evaluated=4)]) == Place(slot=1, n_cached=0)
