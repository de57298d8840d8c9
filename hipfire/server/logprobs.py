"""Log probabilities in OpenAI's shape."""

from collections.abc import Iterable

from hipfire.service.events import ChosenToken, TokenLogprob


def logprobs_document(tokens: Iterable[ChosenToken]) -> dict[str, object]:
    """The `logprobs` of a choice."""
    return {
        "content": [
            {**_token(token.chosen), "top_logprobs": [_token(possible) for possible in token.top]} for token in tokens
        ],
        "refusal": None,
    }


def _token(token: TokenLogprob) -> dict[str, object]:
    # A token need not be whole characters; `bytes` is exact, `token` for people.
    return {
        "token": token.token_bytes.decode(errors="replace"),
        "logprob": token.logprob,
        "bytes": list(token.token_bytes),
    }
