"""A model file run on a device, one sequence to a slot: what tests of whole models need."""

from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
from devices.differential import joined, make_step
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Device, Limits
from hipfire.formats.open import open_checkpoint
from hipfire.models.registry import build_program


class Runner:
    """Keeps the model loaded while it is entered. `kv_cache` is for the device."""

    def __init__(
        self, path: Path, device: Device, *, max_seq: int = 128, n_slots: int = 1, kv_cache: str = "auto"
    ) -> None:
        limits = Limits(max_tokens=max_seq, max_outputs=max_seq, n_slots=n_slots, max_seq=max_seq, kv_cache=kv_cache)
        with open_checkpoint(path) as checkpoint:
            self.model = build_program(checkpoint)
            tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
            self._executable = device.load(self.model.program, tensors, limits, on_progress=lambda _: None)
            # Views of the mapped file, which is about to be unmapped.
            del tensors

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._executable.close()

    def logits(
        self, tokens: Sequence[int], *, start: int = 0, slot: int = 0, outputs: Sequence[int] | None = None
    ) -> NDArray[np.float32]:
        """Logits of the rows asked for, of all by default, after one step of these tokens."""
        step = make_step(tokens, start=start, slot=slot, outputs=outputs)
        return self._executable.run(step, CancelFlag()).whole().copy()

    def greedy(self, prompts: Sequence[Sequence[int]], n_tokens: int) -> list[list[int]]:
        """Each prompt's likeliest continuation, token by token, all in the same steps, each in a slot of its own."""
        steps = [make_step(prompt, slot=i, outputs=[len(prompt) - 1]) for i, prompt in enumerate(prompts)]
        answers: list[list[int]] = [[] for _ in prompts]
        for n_answered in range(n_tokens):
            likeliest = self._executable.run(joined(*steps), CancelFlag()).whole().argmax(axis=1)
            for answer, token in zip(answers, likeliest, strict=True):
                answer.append(int(token))
            steps = [
                make_step(answer[-1:], start=len(prompt) + n_answered, slot=i)
                for i, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
            ]
        return answers


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Log probabilities, row by row."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    out: NDArray[np.float32] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out
