"""Ids that llama.cpp gives on the same vocabularies."""

from typing import Any

import pytest
from reference_data import reference

from hipfire.text.tokenizer import Tokenizer

VOCABULARIES = [
    ("smollm2", "smollm2-135m-instruct"),
    pytest.param("gemma3", "gemma3-270m", marks=pytest.mark.slow),
    ("llama_spm", "llama-spm"),
    ("gpt2", "gpt-2"),
]

# Gemma 3 types </s> as USER_DEFINED, with the other tags of HTML. llama.cpp makes any </s> a control token, which it
# then does not find in a client's text.
DIFFERENT_UNPARSED = {("gemma3-270m", "sp_spm")}


@pytest.fixture
def tokenizer(request: pytest.FixtureRequest, fixture: str) -> Tokenizer:
    found = request.getfixturevalue(fixture)
    assert isinstance(found, Tokenizer)
    return found


def differences(cases: list[dict[str, Any]], key: str, encoded: list[list[int]]) -> list[str]:
    return [case["name"] for case, ids in zip(cases, encoded, strict=True) if case[key] != ids]


@pytest.mark.parametrize(("fixture", "name"), VOCABULARIES)
def test_control_tokens_are_parsed(tokenizer: Tokenizer, name: str) -> None:
    cases = reference("tokens", name)
    encoded = [tokenizer.encode(case["text"], parse_control=True) for case in cases]
    assert differences(cases, "ids", encoded) == []


@pytest.mark.parametrize(("fixture", "name"), VOCABULARIES)
def test_text_of_a_client(tokenizer: Tokenizer, name: str) -> None:
    cases = [case for case in reference("tokens", name) if (name, case["name"]) not in DIFFERENT_UNPARSED]
    encoded = [tokenizer.encode(case["text"]) for case in cases]
    assert differences(cases, "ids_unparsed", encoded) == []


@pytest.mark.parametrize(("fixture", "name"), VOCABULARIES)
def test_bos(tokenizer: Tokenizer, name: str) -> None:
    cases = reference("tokens", name)
    begin = [tokenizer.bos_id] if tokenizer.adds_bos else []
    encoded = [begin + tokenizer.encode(case["text"], parse_control=True) for case in cases]
    assert differences(cases, "ids_with_bos", encoded) == []


@pytest.mark.parametrize(("fixture", "name"), VOCABULARIES)
def test_bytes_of_tokens_are_the_text(tokenizer: Tokenizer, name: str, fixture: str) -> None:
    for case in reference("tokens", name):
        data = b"".join(map(tokenizer.token_bytes, tokenizer.encode(case["text"])))
        text = case["text"]
        if fixture in {"llama_spm", "gemma3"}:
            # SentencePiece writes a space as this, so it cannot tell the two apart.
            text = text.replace("\u2581", " ")
        if fixture == "llama_spm" and text:
            text = f" {text}"
        assert data == text.encode(), case["name"]


@pytest.mark.parametrize(
    ("fixture", "name"), [("llama_spm", "golden-llamacpp-llama-spm"), ("gpt2", "golden-llamacpp-gpt-2")]
)
def test_golden_vectors(tokenizer: Tokenizer, name: str) -> None:
    cases = reference("tokens", name)
    assert [tokenizer.encode(case["text"], parse_control=True) for case in cases] == [case["ids"] for case in cases]


@pytest.mark.parametrize(
    ("fixture", "bos_id", "adds_bos", "eos_ids"),
    [
        # <|endoftext|>, <|im_end|> and, as in llama.cpp, <reponame>.
        ("smollm2", 1, False, {0, 2, 4}),
        pytest.param("gemma3", 2, True, {1, 106}, marks=pytest.mark.slow),
        ("llama_spm", 1, True, {2}),
        ("gpt2", 50256, False, {50256}),
    ],
)
def test_ends_and_beginnings(tokenizer: Tokenizer, bos_id: int, adds_bos: bool, eos_ids: set[int]) -> None:
    assert (tokenizer.bos_id, tokenizer.adds_bos, tokenizer.eos_ids) == (bos_id, adds_bos, eos_ids)
