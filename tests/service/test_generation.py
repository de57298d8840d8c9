from scripted_service import tiny_tokenizer, tokens_of

from hipfire.service.answer import Answer
from hipfire.service.events import Completed
from hipfire.service.generation import Generation
from hipfire.service.pipeline import AnswerPipeline
from hipfire.service.reasoning import ReasoningPlan
from hipfire.service.stats import Stats
from hipfire.service.ticket import Ticket
from hipfire.wire.messages import Finished, Token


async def test_an_answer_ends_once_however_many_tokens_are_there_already() -> None:
    cancelled: list[str] = []
    ticket = Ticket("g", post_cancel=cancelled.append)
    for token in tokens_of("Hello, world! And on it goes."):
        ticket.deliver(Token(id="g", token=token))
    pipeline = AnswerPipeline(tiny_tokenizer(), stop=[", wor"])
    plan = ReasoningPlan(arguments={}, cap=None, in_force=None, warnings=(), keeps_thinking=False)
    answer = Answer(pipeline, n_prompt=1, queue_ms=0.0, plan=plan)
    generation = Generation(ticket, answer, Stats().count())
    events = [await anext(generation)]
    while (event := generation.receive_nowait()) is not None:
        events.append(event)
    ticket.end(Finished(id="g", reason="stop", n_prompt=1, n_cached=0, n_generated=9, prompt_ms=1.0, decode_ms=1.0))
    assert generation.receive_nowait() is None
    assert [event async for event in generation] == []
    assert [type(event) for event in events].count(Completed) == 1
    assert isinstance(events[-1], Completed)
    assert cancelled == ["g"]
