"""Markup within the pipeline: what is counted, reported and searched for stop strings."""

from collections.abc import Sequence

from hipfire.service.events import Delta, ReasoningDelta, TextDelta, ToolCalls
from hipfire.service.pipeline import AnswerPipeline
from hipfire.text.dialects.families import family_of
from hipfire.text.dialects.syntax import Tool
from hipfire.wire.messages import Token

TOOLS = {"f": Tool(name="f", parameters={})}


class Pieces:
    """A tokenizer of which only the pieces of text matter; control tokens have none."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return b"" if self.pieces[token].startswith("<|") else self.pieces[token].encode()


def run(family: str, pieces: Sequence[str], *, stop: Sequence[str] = ()) -> tuple[AnswerPipeline, list[Delta]]:
    markup = family_of(card=family, architecture="", template="").markup(tools=TOOLS, begins_inside=False)
    shown = {token: piece.encode() for token, piece in enumerate(pieces) if piece.startswith("<|")}
    pipeline = AnswerPipeline(Pieces(pieces), stop=stop, markup=markup, shown=shown)
    deltas: list[Delta] = []
    for token in range(len(pieces)):
        deltas += pipeline.feed(Token(id="a", token=token, logprob=-1.0))
        if pipeline.stopped:
            return pipeline, deltas
    return pipeline, [*deltas, *pipeline.close()]


def test_control_tokens_of_the_family_are_seen() -> None:
    pieces = [
        *("<|channel|>", "analysis", "<|message|>", "Hm", "m.", "<|end|>", "<|start|>", "assistant"),
        *("<|channel|>", "commentary to=functions.f", "<|message|>", '{"a":', "1}"),
    ]
    pipeline, (*thoughts, calls) = run("gpt-oss", pieces)
    assert thoughts == [ReasoningDelta("Hm"), ReasoningDelta("m.")]
    assert isinstance(calls, ToolCalls)
    assert [(call.name, call.arguments) for call in calls.calls] == [("f", '{"a": 1}')]
    assert (pipeline.n_reasoning, pipeline.called) == (2, True)


def test_only_tokens_of_the_answer_are_reported() -> None:
    pieces = ["<think>", "one", "STOP", "</think>", "\n\n", "two", " three", "STOP"]
    pipeline, deltas = run("qwen3", pieces, stop=["STOP"])
    told = [token.chosen.token_bytes for delta in deltas if isinstance(delta, TextDelta) for token in delta.logprobs]
    assert told == [b"two", b" three"]
    assert (pipeline.stopped, pipeline.n_reasoning) == (True, 2)


def test_half_a_surrogate_pair_in_an_argument() -> None:
    _, (calls,) = run("hermes", ['<tool_call>{"name": "f", "arguments": {"a": "\\ud800é"}}</tool_call>'])
    assert isinstance(calls, ToolCalls)
    assert calls.calls[0].arguments == '{"a": "\\ud800\\u00e9"}'
