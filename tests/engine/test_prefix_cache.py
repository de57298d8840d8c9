"""Prompts that begin where an earlier sequence has come to, on a scripted device that notices any wrong state."""

from collections.abc import Callable

import attrs
import pytest
from engine_harness import Harness, alone, request
from scripted_device import ScriptedDevice, counting

from hipfire.errors import DeviceError
from hipfire.wire.messages import Cancel, Cancelled, Failed, Finished, Generate, Load, LoadFailed, Started


def n_rows(harness: Harness) -> int:
    """Rows that were run so far."""
    return sum(len(step.token_ids) for step in harness.executable.steps)


def ask(harness: Harness, asked: Generate) -> int:
    """Let a request run to its end, which must be what it is without a cache. Returns the tokens that were cached."""
    before = n_rows(harness)
    harness.settle(asked)
    end = harness.end(asked.id)
    assert isinstance(end, Finished)
    assert Started(id=asked.id, n_cached=end.n_cached) in harness.said
    assert harness.tokens(asked.id) == alone(asked)
    assert n_rows(harness) - before == end.n_prompt - end.n_cached + end.n_generated - 1
    return end.n_cached


def history(harness: Harness, asked: Generate) -> tuple[int, ...]:
    return (*asked.prompt, *harness.tokens(asked.id))


def test_the_second_turn_evaluates_only_what_is_new():
    harness = Harness()
    first = request("a", 1, 2, 3)
    assert ask(harness, first) == 0
    # The state of the last token that was said does not exist: nobody needed it.
    assert ask(harness, request("b", *history(harness, first), 7, 8)) == 3 + 4 - 1


def test_a_stop_token_leaves_all_of_the_answer():
    harness = Harness(ScriptedDevice(counting))
    harness.settle(request("a", 1, 2, 3, stop_ids=(6,)))
    harness.settle(request("b", 1, 2, 3, 4, 5, 6, 9))
    assert harness.end("b").n_cached == 5


def test_the_same_prompt_again_evaluates_one_token():
    harness = Harness()
    ask(harness, request("a", 1, 2, 3))
    assert ask(harness, request("b", 1, 2, 3)) == 2


def test_an_edit_counts_from_where_it_is():
    harness = Harness()
    ask(harness, request("a", 1, 2, 3, 4, 5, 6))
    assert ask(harness, request("b", 1, 2, 3, 9, 5, 6)) == 3
    assert ask(harness, request("c", 1, 2, 3, 4, 5, 6)) == 3


def test_a_shorter_history_is_a_prefix():
    harness = Harness()
    ask(harness, request("a", 1, 2, 3, 4, 5, 6))
    assert ask(harness, request("b", 1, 2, 3)) == 2
    assert ask(harness, request("c", 1, 2, 3, 4, 5, 6)) >= 3


def test_conversations_in_turns_keep_their_state_where_there_are_slots():
    harness = Harness(n_kept=1)
    conversations = {"a": request("a0", 1, 1, 1, max_tokens=3), "b": request("b0", 1, 2, 2, max_tokens=3)}
    for asked in conversations.values():
        ask(harness, asked)
    for turn in range(1, 5):
        for name, asked in conversations.items():
            so_far = history(harness, asked)
            conversations[name] = request(f"{name}{turn}", *so_far, 9, max_tokens=3)
            assert ask(harness, conversations[name]) == len(so_far) - 1


def test_without_the_cache_everything_is_evaluated():
    harness = Harness(prefix_cache=False, n_kept=3)
    assert harness.executable.limits.n_slots == 1
    ask(harness, request("a", 1, 2, 3))
    assert ask(harness, request("b", 1, 2, 3, 4)) == 0


def test_a_prompt_branches_off_from_one_that_is_running():
    harness = Harness(max_concurrent=2)
    first, second = request("a", 1, 2, 3, 4, max_tokens=20), request("b", 1, 2, 3, 9, max_tokens=20)
    harness.turn(first)
    harness.settle(second)
    assert harness.end("b").n_cached == 3
    assert len(harness.executable.copies) == 1
    for asked in (first, second):
        assert harness.tokens(asked.id) == alone(asked)


def test_a_running_sequence_is_branched_off_from_as_far_as_it_is_evaluated():
    harness = Harness(max_concurrent=2, max_step_tokens=4)
    first, second = request("a", *range(1, 13)), request("b", *range(1, 13))
    harness.turn(first)
    harness.settle(second)
    assert harness.end("b").n_cached == 4
    assert harness.tokens("a") == harness.tokens("b") == alone(first)


def test_a_conversation_that_only_begins_alike_leaves_the_other_one_alone():
    harness = Harness(n_kept=1)
    first = request("a", *range(1, 20))
    ask(harness, first)
    assert ask(harness, request("b", 1, 2, 3, 30, 31)) == 3
    assert ask(harness, request("c", *history(harness, first), 5)) == 19 + 4 - 1


# What was cancelled or went wrong


def in_step(number: int, act: Callable[[Harness], None]) -> Harness:
    """A harness in whose step with this number, counted from 0, something happens."""
    device = ScriptedDevice()
    harness = Harness(device, max_step_tokens=4)

    def hook(step, cancel) -> None:
        if len(harness.executable.steps) - 1 == number:
            act(harness)

    device.hook = hook
    return harness


def test_a_cancelled_answer_is_kept_as_far_as_it_was_evaluated():
    harness = Harness()
    harness.turn(request("a", 1, 2, 3, max_tokens=20))
    harness.turn()
    harness.settle(Cancel(id="a"))
    assert harness.end("a") == Cancelled(id="a", n_generated=2)
    assert ask(harness, request("b", 1, 2, 3, *harness.tokens("a"), 7)) == 4


def test_a_step_that_was_broken_off_does_not_count():
    harness = in_step(1, lambda harness: harness.inbox.put(Cancel(id="a")))
    harness.settle(request("a", *range(1, 12)))
    assert isinstance(harness.end("a"), Cancelled)
    assert ask(harness, request("b", *range(1, 12))) == 4


def test_one_cancelled_before_its_first_step_leaves_what_it_began_with():
    harness = Harness()
    first = request("a", *range(1, 9))
    ask(harness, first)
    harness.settle(request("b", 1, 2, 3, 4, 30), Cancel(id="b"))
    assert isinstance(harness.end("b"), Cancelled)
    assert ask(harness, request("c", *history(harness, first), 9)) == 8 + 4 - 1


def fail(harness: Harness) -> None:
    raise DeviceError("scripted")


def test_after_a_failed_step_nothing_is_used_again():
    harness = in_step(4, fail)
    kept = request("a", 1, 2, 3, max_tokens=4)
    ask(harness, kept)
    harness.settle(request("b", 1, 2, 3, 9))
    assert isinstance(harness.end("b"), Failed)
    assert ask(harness, request("c", *history(harness, kept))) == 0


def test_after_broken_logits_that_sequence_is_not_used_again():
    def script(prefix):
        logits = counting(prefix)
        if len(prefix) == 4:
            logits[:] = float("nan")
        return logits

    device = ScriptedDevice(script)
    harness = Harness(device)
    harness.settle(request("a", 1, 2, 3))
    assert isinstance(harness.end("a"), Failed)
    device.script = counting
    harness.settle(request("b", 1, 2, 3, 4))
    assert harness.end("b").n_cached == 0


def test_a_copy_that_fails_is_a_device_that_fails():
    harness = Harness(max_concurrent=2)
    harness.turn(request("a", 1, 2, 3))

    def broken(source: int, target: int, n_positions: int) -> None:
        raise DeviceError("no copy")

    harness.executable.copy_state = broken
    harness.settle(request("b", 1, 2, 9))
    for id_ in "ab":
        assert harness.end(id_) == Failed(id=id_, code="device_error", message="no copy")
    assert ask(harness, request("c", 1, 2, 3)) == 0


# How many are kept


@pytest.mark.parametrize(("limit", "n_kept"), [(0, 0), (63, 0), (64, 1), (640, 10), (1 << 40, 1024)])
def test_slots_are_kept_within_the_limit(limit, n_kept):
    harness = Harness(load=False)
    harness.turn(Load(path="m", max_concurrent=2, prefix_cache_nbytes=limit))
    assert harness.executable.limits.n_slots == 2 + n_kept
    assert harness.executable.limits.max_outputs == 2


def test_kept_slots_never_cost_context():
    device = ScriptedDevice(position_nbytes=1 << 20, free_nbytes=1 << 30)
    for load in (Load(path="m"), Load(path="m", prefix_cache_nbytes=1 << 40), Load(path="m", prefix_cache=False)):
        harness = Harness(device, context_length=1000, load=False)
        harness.turn(load)
        limits = harness.executable.limits
        assert attrs.astuple(limits)[2:4] == (1, 768)


def test_more_sequences_than_may_run_are_kept_but_do_not_run():
    harness = Harness(ScriptedDevice(counting), max_concurrent=2, n_kept=4)
    harness.settle(*(request(f"r{i}", i, max_tokens=2) for i in range(6)))
    assert max(len(step.token_ids) for step in harness.executable.steps) == 2
    assert {slot for step in harness.executable.steps for slot in step.slots.tolist()} == set(range(6))


def test_another_model_has_nothing_of_the_last_ones():
    harness = Harness()
    ask(harness, request("a", 1, 2, 3))
    harness.settle(Load(path="other"))
    assert ask(harness, request("b", 1, 2, 3, 4)) == 0


def test_a_limit_below_zero_is_refused():
    harness = Harness(load=False)
    harness.turn(Load(path="m", prefix_cache_nbytes=-1))
    (failed,) = harness.said
    assert isinstance(failed, LoadFailed)
    assert failed.code == "invalid_request"
