import pytest

from hipfire.engine.span import CappedSpan
from hipfire.wire.messages import SpanCap


def said(chosen: list[int], *, max_tokens: int, open_ids: tuple[int, ...] = ()) -> list[int]:
    span = CappedSpan(SpanCap(max_tokens=max_tokens, open_ids=open_ids, close_ids=(9,), forced_ids=(7, 9, 8)))
    return [span.next(token) for token in chosen]


@pytest.mark.parametrize(
    ("chosen", "follows"),
    [
        pytest.param([1, 2, 3, 4, 5, 6], [1, 2, 7, 9, 8, 6], id="closed when it is full"),
        pytest.param([1, 9, 3, 4, 5, 6], [1, 9, 3, 4, 5, 6], id="closed by itself"),
        pytest.param([1, 2, 9, 4, 5, 6], [1, 2, 9, 4, 5, 6], id="closed by itself at the last moment"),
    ],
)
def test_a_span_that_is_open(chosen: list[int], follows: list[int]) -> None:
    assert said(chosen, max_tokens=2) == follows


def test_a_span_that_the_model_opens() -> None:
    assert said([0, 5, 6, 1, 2, 3, 3, 3, 4], max_tokens=2, open_ids=(5, 6)) == [0, 5, 6, 1, 2, 7, 9, 8, 4]


def test_a_span_that_the_model_does_not_open() -> None:
    chosen = [0] * 10 + [5, 6, 1, 2, 3, 4]
    assert said(chosen, max_tokens=2, open_ids=(5, 6)) == chosen
