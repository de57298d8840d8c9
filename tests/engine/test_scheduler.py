from hipfire.engine.scheduler import Budget, Chunk, plan
from hipfire.engine.sequence import Sequence
from hipfire.wire.messages import Generate, Sampling

BUDGET = Budget(max_tokens=10, max_prompt_tokens_while_decoding=4)


def sequence(id_: str, n_prompt: int, *, n_evaluated: int = 0) -> Sequence:
    request = Generate(id=id_, prompt=(1,) * n_prompt, max_tokens=5, stop_ids=(), sampling=Sampling())
    made = Sequence(request, slot=0, context_length=1000, now=0.0)
    made.n_evaluated = n_evaluated
    return made


def rows(*sequences: Sequence) -> dict[str, int]:
    return {chunk.sequence.id: chunk.n_tokens for chunk in plan(sequences, BUDGET)}


def test_nothing_to_run_is_an_empty_plan():
    assert plan([], BUDGET) == ()


def test_a_short_prompt_is_one_chunk_and_its_last():
    (chunk,) = plan([sequence("a", 7)], BUDGET)
    assert chunk.n_tokens == 7
    assert chunk.is_last


def test_a_long_prompt_comes_in_chunks_of_the_budget():
    long = sequence("a", 25)
    chunks: list[Chunk] = []
    while not chunks or not chunks[-1].is_last:
        chunks += plan([long], BUDGET)
        if not chunks[-1].is_last:
            long.n_evaluated += chunks[-1].n_tokens
    assert [chunk.n_tokens for chunk in chunks] == [10, 10, 5]


def test_all_that_decode_go_on_in_every_step():
    decoding = [sequence(f"d{i}", 8, n_evaluated=7) for i in range(3)]
    assert rows(*decoding) == {"d0": 1, "d1": 1, "d2": 1}


def test_a_long_prompt_does_not_hold_up_those_that_decode():
    assert rows(sequence("long", 100), sequence("d", 8, n_evaluated=7)) == {"d": 1, "long": 4}


def test_a_step_never_has_more_rows_than_the_budget():
    decoding = [sequence(f"d{i}", 8, n_evaluated=7) for i in range(8)]
    planned = rows(sequence("long", 100), *decoding)
    assert planned["long"] == 2
    assert sum(planned.values()) == 10


def test_prompts_are_served_first_come_first_served():
    assert rows(sequence("first", 6), sequence("second", 100), sequence("third", 5)) == {"first": 6, "second": 4}


def test_several_short_prompts_share_a_step():
    assert rows(sequence("a", 3), sequence("b", 4), sequence("c", 3)) == {"a": 3, "b": 4, "c": 3}


def test_the_last_token_of_a_prompt_counts_as_decoding():
    assert rows(sequence("a", 11, n_evaluated=10), sequence("b", 1)) == {"a": 1, "b": 1}
