import pytest

from hipfire.engine.context import fit_context, fit_kept_slots
from hipfire.errors import OutOfMemory

MIB = 1 << 20
GIB = 1 << 30


def nbytes(n_tokens: int) -> int:
    """A GiB of weights, and a MiB for each token."""
    return GIB + n_tokens * MIB


def fit(free_nbytes: int | None, *, wanted: int | None = None, trained: int = 4096) -> int:
    return fit_context(nbytes, wanted=wanted, trained=trained, free_nbytes=free_nbytes)


def test_with_room_it_is_what_the_model_was_trained_on():
    assert fit(100 * GIB) == 4096


def test_where_nobody_knows_what_is_free_everything_fits():
    assert fit(None) == 4096
    assert fit(None, wanted=9999) == 9999


def test_without_room_it_is_what_fits_beside_the_weights_and_a_headroom():
    # A tenth of 4 GiB is left alone, 1 GiB is weights: 2662 MiB remain.
    assert fit(4 * GIB) == 2662 // 64 * 64


def test_the_headroom_is_at_least_256_mib():
    assert fit(2 * GIB) == 2048 - 1024 - 256


def test_a_length_that_was_asked_for_is_kept_exactly():
    assert fit(100 * GIB, wanted=100) == 100
    assert fit(100 * GIB, wanted=5001) == 5001
    assert fit(GIB + 1000 * MIB, wanted=1000) == 1000


def test_a_length_that_was_asked_for_and_does_not_fit_is_an_error_with_the_numbers():
    with pytest.raises(OutOfMemory, match="2048 MiB with a context of 1024 tokens, and 2047 MiB can be had"):
        fit(2 * GIB - 1, wanted=1024)


def test_next_to_no_context_is_an_error():
    with pytest.raises(OutOfMemory, match="context of 512 tokens"):
        fit(GIB + 600 * MIB)
    with pytest.raises(OutOfMemory, match="and 0 MiB can be had"):
        fit(MIB)


def test_a_model_of_a_short_context_needs_only_that():
    assert fit(GIB + 256 * MIB + 128 * MIB, trained=128) == 128


def kept(free_nbytes: int | None, *, limit: int | None = None, model: int = GIB) -> int:
    """Slots of 100 MiB."""
    return fit_kept_slots(slot_nbytes=100 * MIB, limit_nbytes=limit, model_nbytes=model, free_nbytes=free_nbytes)


def test_by_default_a_quarter_of_the_free_memory_is_for_kept_slots():
    assert kept(2 * GIB) == 512 // 100
    assert kept(100 * GIB) == 8


def test_kept_slots_take_what_model_and_headroom_leave_at_most():
    # A tenth of 4 GiB is left alone, and 3 GiB is the model.
    assert kept(4 * GIB, model=3 * GIB) == (1024 - 410) // 100
    assert kept(4 * GIB, model=3 * GIB, limit=100 * GIB) == (1024 - 410) // 100
    assert kept(4 * GIB, model=4 * GIB) == 0


def test_a_limit_for_kept_slots_is_kept():
    assert kept(100 * GIB, limit=399 * MIB) == 3
    assert kept(100 * GIB, limit=50 * GIB) == 512
    assert kept(100 * GIB, limit=0) == 0


def test_where_nobody_knows_what_is_free_slots_are_kept_for_a_limit_only():
    assert kept(None) == 0
    assert kept(None, limit=GIB) == 10
