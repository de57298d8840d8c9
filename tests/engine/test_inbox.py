import threading

import pytest

from hipfire.engine.inbox import Inbox
from hipfire.engine.scheduler import Chunk
from hipfire.engine.sequence import Sequence
from hipfire.wire.messages import Cancel, Generate, Load, Sampling, Unload


def chunk(id_: str, n_tokens: int) -> Chunk:
    request = Generate(id=id_, prompt=(1,) * 9, max_tokens=5, stop_ids=(), sampling=Sampling())
    return Chunk(sequence=Sequence(request, slot=0, context_length=100, now=0.0), n_tokens=n_tokens)


def running(*chunks: Chunk) -> Inbox:
    inbox = Inbox()
    inbox.begin(chunks)
    return inbox


def test_messages_are_taken_in_order():
    inbox = Inbox()
    inbox.put(Cancel(id="a"))
    inbox.put(Unload())
    assert inbox.take(wait=True) == [Cancel(id="a"), Unload()]
    assert inbox.take(wait=False) == []


def test_waiting_ends_with_a_message_from_another_thread():
    inbox = Inbox()
    other = threading.Thread(target=inbox.put, args=(Unload(),))
    other.start()
    assert inbox.take(wait=True) == [Unload()]
    other.join()


def test_waiting_ends_when_it_is_closed_and_nothing_is_taken_after():
    inbox = Inbox()
    inbox.put(Unload())
    other = threading.Thread(target=inbox.close)
    other.start()
    other.join()
    assert inbox.take(wait=True) is None
    assert inbox.take(wait=False) is None


@pytest.mark.parametrize("n_tokens", [1, 5])
def test_the_only_sequence_of_a_step_breaks_it_off(n_tokens):
    inbox = running(chunk("a", n_tokens))
    inbox.put(Cancel(id="a"))
    assert inbox.flag.is_set()


def test_one_of_several_that_decode_does_not():
    inbox = running(chunk("a", 1), chunk("b", 1))
    inbox.put(Cancel(id="a"))
    assert not inbox.flag.is_set()


def test_the_last_of_several_that_decode_does():
    inbox = running(chunk("a", 1), chunk("b", 1))
    inbox.put(Cancel(id="a"))
    inbox.put(Cancel(id="b"))
    assert inbox.flag.is_set()


def test_a_prompt_does_whoever_shares_the_step():
    inbox = running(chunk("a", 1), chunk("b", 5))
    inbox.put(Cancel(id="b"))
    assert inbox.flag.is_set()


def test_a_sequence_that_decodes_beside_a_prompt_does_not():
    inbox = running(chunk("a", 1), chunk("b", 5))
    inbox.put(Cancel(id="a"))
    assert not inbox.flag.is_set()


def test_others_ids_do_not():
    inbox = running(chunk("a", 5))
    inbox.put(Cancel(id="b"))
    inbox.put(Generate(id="c", prompt=(1,), max_tokens=1, stop_ids=(), sampling=Sampling()))
    assert not inbox.flag.is_set()


@pytest.mark.parametrize("message", [Load(path="m"), Unload()])
def test_loading_and_unloading_do_when_a_step_runs(message):
    inbox = running(chunk("a", 1), chunk("b", 1))
    inbox.put(message)
    assert inbox.flag.is_set()
    idle = Inbox()
    idle.put(message)
    assert not idle.flag.is_set()


def test_a_cancel_that_came_before_the_step_began_counts():
    inbox = Inbox()
    inbox.put(Cancel(id="a"))
    inbox.begin([chunk("a", 5)])
    assert inbox.flag.is_set()


def test_the_flag_is_cleared_for_the_next_step():
    inbox = running(chunk("a", 1))
    inbox.put(Cancel(id="a"))
    inbox.end()
    inbox.take(wait=False)
    inbox.begin([chunk("b", 1)])
    assert not inbox.flag.is_set()


def test_after_a_step_nothing_sets_it():
    inbox = running(chunk("a", 1))
    inbox.end()
    inbox.put(Cancel(id="a"))
    assert not inbox.flag.is_set()


def test_closing_breaks_off_this_step_and_any_later_one():
    inbox = running(chunk("a", 1))
    inbox.close()
    assert inbox.flag.is_set()
    inbox.begin([chunk("b", 1)])
    assert inbox.flag.is_set()
