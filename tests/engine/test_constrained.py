import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import jsonschema
import numpy as np
import pytest
from engine_harness import Harness
from engine_harness import request as a_request
from scripted_device import N_VOCAB, ScriptedDevice, counting, hashed
from scripted_service import tiny_tokenizer

from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.engine.loader import Loader
from hipfire.engine.sampler import choose
from hipfire.grammar.rules import Rules
from hipfire.grammar.tokens import pack_tokens
from hipfire.service.constraint import vocabulary_of
from hipfire.text.literals import LiteralMatcher
from hipfire.wire.messages import Failed, Finished, Generate, Load, Sampling, SpanCap, Token, Unload, Vocabulary

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "tiny-llama" / "model.gguf"
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}
END = N_VOCAB - 1
LETTERS = [bytes([ord("a") + token]) for token in range(26)]
"""The scripted model's tokens are a to z, five without a text, and the end."""


def vocabulary(tokens: list[bytes], *end_ids: int) -> Vocabulary:
    lengths, data = pack_tokens(tokens)
    return Vocabulary(lengths=lengths, data=data, end_ids=end_ids or (END,))


NO_FORCING = '%llguidance {"no_forcing": true}'
SCRIPTED = vocabulary([*LETTERS, *[b""] * 6])


def request(grammar: str | None, *prompt: int, **fields: Any) -> Generate:
    fields = {"max_tokens": 20, "stop_ids": (END,), **fields}
    if grammar is not None:
        grammar = f"{NO_FORCING}\n{grammar}"
    return attrs.evolve(a_request(fields.pop("id_", "a"), *(prompt or (3,)), **fields), grammar=grammar)


def said(harness: Harness, id_: str = "a") -> str:
    return b"".join(LETTERS[token] for token in harness.tokens(id_)).decode()


def scripted(script: Callable[[tuple[int, ...]], np.ndarray] = hashed, **fields: Any) -> Harness:
    harness = Harness(ScriptedDevice(script), **fields)
    harness.turn(SCRIPTED)
    return harness


@pytest.mark.parametrize(
    "sampling", [Sampling(), Sampling(temperature=1.0, seed=3), Sampling(temperature=2.0, top_k=2)]
)
def test_an_answer_keeps_to_its_grammar_and_ends_with_it(sampling: Sampling) -> None:
    harness = scripted()
    harness.settle(request('start: "ab" ("cd" | "ef") "g"', sampling=sampling))
    assert said(harness) in ("abcdg", "abefg")
    end = harness.end("a")
    assert isinstance(end, Finished)
    assert (end.reason, end.n_generated) == ("stop", 5)
    # Nothing can be added, so nobody waits for the model to end it.
    assert len(harness.executable.steps) == 5


def test_an_answer_that_may_go_on_ends_when_the_model_ends_it() -> None:
    def ends_early(prefix: tuple[int, ...]) -> np.ndarray:
        logits = np.zeros(N_VOCAB, np.float32)
        logits[END] = 9
        return logits

    harness = scripted(ends_early)
    harness.settle(request("start: /a{3,}/"))
    assert said(harness) == "aaa"
    assert harness.end("a").reason == "stop"


def test_an_answer_that_is_cut_off_says_so() -> None:
    harness = scripted()
    harness.settle(request("start: /a{3,}/", max_tokens=2))
    assert (said(harness), harness.end("a").reason) == ("aa", "length")


def test_an_answer_that_is_whole_with_its_last_token_is_not_cut_off() -> None:
    harness = scripted()
    harness.settle(request('start: "ab"', max_tokens=2))
    assert (said(harness), harness.end("a").reason) == ("ab", "stop")


def test_wishes_about_sampling_hold_among_what_is_allowed() -> None:
    grammar = "start: /[xyz]{6}/"
    harness = scripted(counting)
    harness.settle(request(grammar, sampling=Sampling(logit_bias={24: 50.0, 0: 90.0})))
    assert said(harness) == "yyyyyy"
    harness.settle(request(grammar, sampling=Sampling(frequency_penalty=2.0)))
    assert sorted(said(harness)[6:]) == sorted("xxyyzz")


def test_log_probabilities_are_the_models_own() -> None:
    harness = scripted(counting)
    harness.settle(request('start: "z"', sampling=Sampling(n_logprobs=1)))
    (token,) = (message for message in harness.said if isinstance(message, Token))
    normaliser = np.log(np.exp(5) + N_VOCAB - 1)
    assert token.logprob == pytest.approx(-normaliser)
    assert token.top == ((4, pytest.approx(5 - normaliser)),)


def test_answers_with_and_without_a_grammar_run_side_by_side() -> None:
    harness = scripted(max_concurrent=3)
    harness.settle(
        request("start: /a{9}/"),
        request(None, id_="b", max_tokens=9),
        request("start: /b{9}/", id_="c", sampling=Sampling(temperature=1.0)),
    )
    assert (said(harness, "a"), said(harness, "c")) == ("a" * 9, "b" * 9)
    free = Harness(ScriptedDevice(hashed))
    free.settle(request(None, id_="b", max_tokens=9))
    assert harness.tokens("b") == free.tokens("b")


def test_a_cap_forces_its_tokens_within_the_grammar() -> None:
    cap = SpanCap(max_tokens=3, open_ids=(), close_ids=(25,), forced_ids=(24, 25))
    harness = scripted()
    harness.settle(attrs.evolve(request('start: /[a-y]*/ z\nz: "z" /[abc]{2}/'), cap=cap))
    answer = said(harness)
    assert (answer[3:5], answer[5:].strip("abc"), len(answer)) == ("yz", "", 7)


def test_a_cap_that_breaks_the_grammar_fails_the_request_alone() -> None:
    cap = SpanCap(max_tokens=3, open_ids=(), close_ids=(25,), forced_ids=(24, 25))
    harness = scripted(max_concurrent=2)
    harness.settle(
        attrs.evolve(request("start: /a{9}/"), cap=cap),
        request("start: /b{9}/", id_="b"),
    )
    end = harness.end("a")
    assert isinstance(end, Failed)
    assert end.code == "invalid_request"
    assert "cannot be followed" in end.message
    assert said(harness, "b") == "b" * 9


def test_no_token_that_goes_on_fails_the_request() -> None:
    harness = scripted()
    harness.settle(request('start: "a1"'))
    end = harness.end("a")
    assert isinstance(end, Failed)
    assert end.code == "invalid_request"
    harness.settle(request('start: "b"', id_="b"))
    assert said(harness, "b") == "b"


def test_a_grammar_that_is_none_fails_when_its_turn_comes() -> None:
    harness = scripted()
    harness.settle(request("start: nothing"), request('start: "b"', id_="b"))
    assert isinstance(harness.end("a"), Failed)
    assert said(harness, "b") == "b"


@pytest.mark.parametrize(
    "told",
    [
        None,
        vocabulary([b"a"] * (N_VOCAB + 1)),
        vocabulary(LETTERS, 26),
        attrs.evolve(SCRIPTED, end_ids=()),
        attrs.evolve(SCRIPTED, data="YWI="),
    ],
)
def test_without_a_vocabulary_that_fits_there_is_no_grammar(told: Vocabulary | None) -> None:
    harness = Harness(ScriptedDevice(hashed))
    if told is not None:
        harness.turn(told)
    harness.settle(request('start: "a"'))
    end = harness.end("a")
    assert isinstance(end, Failed)
    assert "vocabulary" in end.message


@pytest.mark.parametrize("message", [Load(path="scripted"), Unload()])
def test_another_model_has_another_vocabulary(message: Load | Unload) -> None:
    harness = scripted()
    harness.settle(message, Load(path="scripted"), request('start: "a"'))
    assert isinstance(harness.end("a"), Failed)


def test_a_vocabulary_may_be_shorter_than_the_models_rows() -> None:
    harness = Harness(ScriptedDevice(hashed))
    harness.turn(vocabulary([*LETTERS, b""], 26))
    harness.settle(request("start: /[a-z]{3}/", stop_ids=(26,)))
    assert len(said(harness)) == 3


def test_the_mask_decides_at_every_temperature_and_cut() -> None:
    logits = np.random.default_rng(0).standard_normal(1000).astype(np.float32)
    best = np.argsort(-logits)
    allowed = np.zeros(1000, np.bool_)
    allowed[best[-3:]] = True
    for sampling in (
        Sampling(),
        Sampling(temperature=1e-9),
        Sampling(temperature=2.0),
        Sampling(temperature=1.0, top_k=1),
        Sampling(temperature=1.0, top_p=0.1),
        Sampling(temperature=1.0, top_k=40, top_p=0.9, min_p=0.01),
        Sampling(temperature=1.0, repeat_penalty=1.9),
    ):
        chosen = {
            choose(logits, sampling, recent=best[:64].tolist(), n=n, allowed=allowed, row_math=NumpyRowMath()).token
            for n in range(40)
        }
        assert chosen <= set(best[-3:].tolist())
        if sampling.temperature == 2.0:
            assert len(chosen) == 3


# A real model, whose answers are nonsense, on the CPU


@pytest.fixture(scope="module")
def tiny() -> Harness:
    harness = Harness(load=False, loader=Loader())
    harness.turn(Load(path=str(TINY), device="cpu", n_threads=1, max_concurrent=4))
    harness.turn(vocabulary_of(tiny_tokenizer()))
    return harness


def json_request(id_: str, *, seed: int, **sampling: Any) -> Generate:
    rules = Rules(LiteralMatcher(tiny_tokenizer().control_texts).split)
    asked = a_request(
        id_,
        *tiny_tokenizer().encode("A person, please."),
        max_tokens=400,
        stop_ids=(0, 2),
        sampling=Sampling(temperature=1.0, seed=seed, **sampling),
    )
    return attrs.evolve(asked, grammar=rules.grammar(rules.json(SCHEMA, strict=True)))


def answer(harness: Harness, id_: str) -> str:
    return b"".join(map(tiny_tokenizer().token_bytes, harness.tokens(id_))).decode()


def test_nonsense_in_json_is_valid_json_and_the_same_with_the_same_seed(tiny: Harness) -> None:
    tiny.settle(*(json_request(f"a{seed}", seed=seed, n_logprobs=2) for seed in range(12)))
    answers = [answer(tiny, f"a{seed}") for seed in range(12)]
    for seed, text in enumerate(answers):
        assert tiny.end(f"a{seed}").reason == "stop"
        jsonschema.validate(json.loads(text), SCHEMA)
    assert len(set(answers)) == 12
    # Alone, after a prompt that was kept, where before it shared its steps with others.
    tiny.settle(json_request("again", seed=7, n_logprobs=2))
    one, other = ([(m.token, m.logprob, m.top) for m in tiny.said if isinstance(m, Token) and m.id == id_]
                  for id_ in ("a7", "again"))  # fmt: skip
    assert one == other
