"""How near a model file on a device comes to a reference in float32.

The reference is an .npz as in fixtures/real: for each text `ids{i}`, its mean negative log likelihood `nll{i}`, and
the likeliest tokens of each position with their log probabilities, `top_ids{i}` and `top_logprobs{i}`; for each chat
`chat_prompt{i}` and the greedy answer `chat_greedy{i}`.

usage: python benchmarks/quality.py MODEL REFERENCE.npz [--device NAME] [--threads N] [--kv-cache NAME] [--json]
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from hipfire.devices.base import CancelFlag, Executable, Limits, Step
from hipfire.devices.registry import open_device
from hipfire.formats.open import open_checkpoint
from hipfire.models.registry import build_program

N_TOP = 8
"""Of the likeliest tokens, how many must have the right log probability."""

Reference = Mapping[str, NDArray[np.generic]]


@attrs.frozen(kw_only=True)
class TextQuality:
    """One text, every position given all before it. `nll` is the mean over the positions that have a next token."""

    n_tokens: int
    nll: float
    reference_nll: float
    top1_agreement: float
    max_logprob_difference: float

    @property
    def nll_excess(self) -> float:
        """How much worse than the reference, as a part of it."""
        return self.nll / self.reference_nll - 1


@attrs.frozen(kw_only=True)
class ChatQuality:
    """One greedy answer: how many tokens are the reference's before the first that is not."""

    n_tokens: int
    n_equal: int


def measure_text(executable: Executable, ids: NDArray[np.int32], reference: Reference, i: int) -> TextQuality:
    n = len(ids)
    logprobs = _log_softmax(executable.run(_step(ids, start=0, outputs=np.arange(n)), CancelFlag()).whole())
    top_ids = reference[f"top_ids{i}"][:, :N_TOP].astype(np.int64)
    differences = np.take_along_axis(logprobs, top_ids, axis=1) - reference[f"top_logprobs{i}"][:, :N_TOP].astype(float)
    return TextQuality(
        n_tokens=n,
        nll=float(-logprobs[np.arange(n - 1), ids[1:]].mean()),
        reference_nll=float(reference[f"nll{i}"]),
        top1_agreement=float((logprobs.argmax(axis=1) == top_ids[:, 0]).mean()),
        max_logprob_difference=float(np.abs(differences).max()),
    )


def measure_chat(executable: Executable, prompt: NDArray[np.int32], answer: NDArray[np.int32]) -> ChatQuality:
    tokens, start = prompt, 0
    for n_equal, expected in enumerate(answer):
        logits = executable.run(_step(tokens, start=start, outputs=np.array([len(tokens) - 1])), CancelFlag()).whole()
        start += len(tokens)
        if int(logits.argmax()) != expected:
            return ChatQuality(n_tokens=len(answer), n_equal=n_equal)
        tokens = answer[n_equal : n_equal + 1]
    return ChatQuality(n_tokens=len(answer), n_equal=len(answer))


def measure(executable: Executable, reference: Reference) -> tuple[list[TextQuality], list[ChatQuality]]:
    texts = [
        measure_text(executable, reference[name].astype(np.int32), reference, i)
        for i, name in _numbered("ids", reference)
    ]
    chats = [
        measure_chat(executable, reference[name].astype(np.int32), reference[f"chat_greedy{i}"].astype(np.int32))
        for i, name in _numbered("chat_prompt", reference)
    ]
    return texts, chats


def _numbered(stem: str, reference: Reference) -> list[tuple[int, str]]:
    return [(i, f"{stem}{i}") for i in range(len(reference)) if f"{stem}{i}" in reference]


def _step(tokens: NDArray[np.int32], *, start: int, outputs: NDArray[np.integer]) -> Step:
    n = len(tokens)
    return Step(
        token_ids=tokens,
        positions=np.arange(start, start + n, dtype=np.int32),
        slots=np.zeros(n, np.int32),
        output_rows=outputs.astype(np.int32),
    )


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=1, keepdims=True).astype(np.float64)
    out: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return out


def load(arguments: argparse.Namespace, n_rows: int) -> Executable:
    device = open_device(arguments.device, n_threads=arguments.threads)
    limits = Limits(max_tokens=n_rows, max_outputs=n_rows, n_slots=1, max_seq=n_rows, kv_cache=arguments.kv_cache)
    with open_checkpoint(arguments.model) as checkpoint:
        program = build_program(checkpoint).program
        tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
        try:
            return device.load(program, tensors, limits, on_progress=lambda _: None)
        finally:
            # Views of the file, which could not be unmapped while they are there.
            tensors.clear()


def show(texts: list[TextQuality], chats: list[ChatQuality]) -> None:
    table = Table("", "tokens", "NLL", "reference", "excess", "top-1", f"max |Δ logprob| of {N_TOP}", "greedy")
    for i, text in enumerate(texts):
        table.add_row(
            f"text {i}",
            str(text.n_tokens),
            f"{text.nll:.4f}",
            f"{text.reference_nll:.4f}",
            f"{text.nll_excess:+.2%}",
            f"{text.top1_agreement:.1%}",
            f"{text.max_logprob_difference:.2e}",
        )
    for i, chat in enumerate(chats):
        table.add_row(f"chat {i}", str(chat.n_tokens), *[""] * 5, f"{chat.n_equal} of {chat.n_tokens}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--kv-cache", default="auto")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with np.load(arguments.reference) as archive:
        reference = dict(archive)
    n_rows = sum(len(reference[name]) for name in reference if name.startswith(("ids", "chat")))
    executable = load(arguments, n_rows)
    texts, chats = measure(executable, reference)
    executable.close()
    if arguments.json:
        rows = {"texts": [attrs.asdict(text) for text in texts], "chats": [attrs.asdict(chat) for chat in chats]}
        print(json.dumps(rows))
    else:
        show(texts, chats)


if __name__ == "__main__":
    main()
