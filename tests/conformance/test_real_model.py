"""A handful of rules end to end: server, engine process and SmolLM2, all real. One engine for all of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import httpx
import pytest
from real_program import TIMEOUT_S, free_port, program_in, read_until

pytestmark = pytest.mark.slow  # an engine starts and a real model is loaded


@attrs.frozen(kw_only=True)
class Real:
    client: httpx.Client

    def ask(self, content: str = "Name three colours.", **fields: object) -> dict[str, Any]:
        response = self.client.post("/v1/chat/completions", json=self.body(content, **fields))
        assert response.status_code == 200, response.text
        body: dict[str, Any] = response.json()
        return body

    def stream(self, content: str = "Name three colours.", **fields: object) -> list[dict[str, Any]]:
        response = self.client.post("/v1/chat/completions", json=self.body(content, stream=True, **fields))
        *frames, done, _ = response.text.split("\n\n")
        assert done == "data: [DONE]"
        return [json.loads(frame.removeprefix("data: ")) for frame in frames]

    def body(self, content: str, **fields: object) -> dict[str, object]:
        return {"messages": [{"role": "user", "content": content}], "max_tokens": 24, "temperature": 0, **fields}


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory, smollm2_path: Path) -> Iterator[Real]:
    with program_in(tmp_path_factory.mktemp("real")) as program:
        port = free_port()
        process = program.start("serve", str(smollm2_path), str(port), "--max-seq", "1024")
        read_until(process, "stop it")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=TIMEOUT_S, trust_env=False) as client:
            yield Real(client=client)


def content_of(body: dict[str, Any]) -> str:
    text: str = body["choices"][0]["message"]["content"]
    return text


def joined(chunks: list[dict[str, Any]]) -> str:
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks if chunk["choices"])


def test_a_stream_says_what_a_whole_answer_says(real: Real) -> None:
    """Concatenated deltas equal the whole answer, and so does the rest."""
    whole = real.ask()
    *chunks, usage = real.stream(stream_options={"include_usage": True})
    assert joined(chunks) == content_of(whole)
    assert len(content_of(whole)) > 20
    assert chunks[-1]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    for key in ("prompt_tokens", "completion_tokens"):
        assert usage["usage"][key] == whole["usage"][key]


def test_the_same_seed_gives_the_same_text(real: Real) -> None:
    """`seed`: same seed and same request give the same text; without one it is fresh entropy."""
    hot = {"temperature": 1.5, "top_p": 1.0, "top_k": 0}
    seven = content_of(real.ask(**hot, seed=7))
    assert content_of(real.ask(**hot, seed=7)) == seven
    assert len({seven, *(content_of(real.ask(**hot)) for _ in range(2))}) == 3


def test_a_stop_string_ends_the_answer(real: Real) -> None:
    """`stop`: the match is not returned, also across token borders."""
    text = content_of(real.ask())
    # From the middle of one word to the middle of the next.
    cut = text.index(" ", 8)
    stop = text[cut - 2 : cut + 3]
    stopped = real.ask(stop=[stop])
    assert content_of(stopped) == text[: text.index(stop)]
    assert stopped["choices"][0]["finish_reason"] == "stop"
    assert stopped["usage"]["completion_tokens"] < 24
    assert joined(real.stream(stop=[stop])) == content_of(stopped)


def test_log_probabilities(real: Real) -> None:
    """`logprobs`: the chosen token is the likeliest at temperature 0; bytes make the answer."""
    choice = real.ask(logprobs=True, top_logprobs=3)["choices"][0]
    tokens = choice["logprobs"]["content"]
    assert b"".join(bytes(token["bytes"]) for token in tokens).decode() == choice["message"]["content"]
    for token in tokens:
        assert token["top_logprobs"][0]["bytes"] == token["bytes"]
        assert token["logprob"] == pytest.approx(token["top_logprobs"][0]["logprob"])
        assert sorted((top["logprob"] for top in token["top_logprobs"]), reverse=True) == [
            top["logprob"] for top in token["top_logprobs"]
        ]


def test_max_tokens_is_met_to_the_token(real: Real) -> None:
    """`max_tokens`, `finish_reason` `length`, and the usage that goes with it."""
    for n in (1, 5):
        body = real.ask(max_tokens=n)
        assert (body["choices"][0]["finish_reason"], body["usage"]["completion_tokens"]) == ("length", n)


def test_the_next_turn_is_cached(real: Real) -> None:
    """`cached_tokens`: the next turn of a conversation evaluates only what is new, and says the same."""
    first = real.ask("Tell me of the sea.")
    turns = [
        {"role": "user", "content": "Tell me of the sea."},
        {"role": "assistant", "content": content_of(first)},
        {"role": "user", "content": "And of the sky?"},
    ]
    warm = real.ask(messages=turns)
    cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] <= cached < warm["usage"]["prompt_tokens"]


def test_what_does_not_fit_is_refused(real: Real) -> None:
    """`context_length_exceeded`, with both counts."""
    response = real.client.post("/v1/chat/completions", json=real.body("word " * 1100))
    assert (response.status_code, response.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert "1024" in response.json()["error"]["message"]


def test_a_client_that_goes_stops_the_engine(real: Real) -> None:
    """Cancellation: the engine stops within a decode step, and the next request is served at once."""
    body = real.body("Count to a thousand.", max_tokens=900, stream=True)
    before = real.client.get("/stats").json()["requests"]["cancelled"]
    with real.client.stream("POST", "/v1/chat/completions", json=body) as response:
        next(response.iter_lines())
    assert real.ask(max_tokens=2)["usage"]["completion_tokens"] == 2
    stats = real.client.get("/stats").json()
    assert (stats["requests"]["cancelled"], stats["in_flight"]) == (before + 1, 0)


def test_the_model_is_described(real: Real, smollm2_path: Path) -> None:
    """`/v1/models` and `/stats` tell of what is loaded."""
    model = real.client.get("/v1/models").json()["data"][0]
    assert model["hipfire"] == {
        "arch": "llama",
        "quant": "Q4_1",
        "size_bytes": smollm2_path.stat().st_size,
        "context_length": 1024,
        "loaded": True,
    }
    stats = real.client.get("/stats").json()
    assert stats["device"].startswith("cpu")
    assert stats["memory_bytes"] > 0
    assert real.client.get("/health").json()["native"] is True
