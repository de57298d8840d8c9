"""From a Load to a model that runs: opens the file, builds its Program, opens the device, places the weights there.

Knows no sequences. Everything it uses comes as an argument, so that tests load a scripted device.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import attrs

from hipfire.devices.base import Device, Executable, Limits, Progress
from hipfire.devices.registry import open_device
from hipfire.engine.context import fit_context, fit_kept_slots
from hipfire.engine.scheduler import Budget
from hipfire.errors import InvalidRequest
from hipfire.formats.checkpoint import Checkpoint
from hipfire.formats.open import open_checkpoint
from hipfire.models.model import Model
from hipfire.models.registry import build_program
from hipfire.wire.messages import Load

log = logging.getLogger("hipfire.engine")

MAX_STEP_TOKENS = 512
"""Rows of a step when only prompts are evaluated: enough to use the machine well, and a pause to cancel in."""

WHILE_DECODING = 1 / 4
"""The share of those rows that prompts may have while other sequences decode."""


class OpenDevice(Protocol):
    def __call__(self, name: str, *, n_threads: int | None) -> Device: ...


@attrs.frozen(kw_only=True, eq=False)
class LoadedModel:
    """A model in place. `context_length` is the number of tokens that each of `n_slots` sequences may hold.

    `max_concurrent` of them may run. The others have ended and are kept, as prefixes of prompts to come, if
    `keeps_prefixes`.
    """

    model: Model
    device: Device
    executable: Executable
    context_length: int
    n_slots: int
    max_concurrent: int
    keeps_prefixes: bool
    budget: Budget
    _checkpoint: Checkpoint = attrs.field(alias="checkpoint")

    def close(self) -> None:
        """Free everything. Idempotent."""
        self.executable.close()
        self._checkpoint.close()


@attrs.frozen(kw_only=True, eq=False)
class Loader:
    max_step_tokens: int = MAX_STEP_TOKENS
    open_checkpoint: Callable[[Path], Checkpoint] = open_checkpoint
    build_program: Callable[[Checkpoint], Model] = build_program
    open_device: OpenDevice = open_device

    def load(self, load: Load, on_progress: Progress) -> LoadedModel:
        """Raises ModelFileError, ModelNotFound, DeviceError, OutOfMemory, InvalidRequest; then nothing is held."""
        if load.max_concurrent < 1 or (load.max_seq is not None and load.max_seq < 1):
            raise InvalidRequest(f"max_concurrent {load.max_concurrent} or max_seq {load.max_seq} is not 1 or more")
        if load.prefix_cache_nbytes is not None and load.prefix_cache_nbytes < 0:
            raise InvalidRequest(f"prefix_cache_nbytes {load.prefix_cache_nbytes} is not 0 or more")
        checkpoint = self.open_checkpoint(Path(load.path))
        loaded = None
        try:
            loaded = self._place(load, checkpoint, on_progress)
        finally:
            if loaded is None:
                checkpoint.close()
        return loaded

    def _place(self, load: Load, checkpoint: Checkpoint, on_progress: Progress) -> LoadedModel:
        model = self.build_program(checkpoint)
        device = self.open_device(load.device, n_threads=load.n_threads)
        limits = self._fit(load, model, device)
        _explain(limits.max_seq, load, model)
        tensors = {weight.name: checkpoint.tensors[weight.name].data for weight in model.program.weights}

        def on_placed(fraction: float) -> None:
            # A device that keeps its own copy needs the file's no longer; else both would be in memory at the end.
            checkpoint.drop_pages()
            on_progress(fraction)

        return LoadedModel(
            model=model,
            device=device,
            executable=device.load(model.program, tensors, limits, on_progress=on_placed),
            context_length=limits.max_seq,
            n_slots=limits.n_slots,
            max_concurrent=load.max_concurrent,
            keeps_prefixes=load.prefix_cache,
            budget=Budget(
                max_tokens=limits.max_tokens,
                max_prompt_tokens_while_decoding=max(int(limits.max_tokens * WHILE_DECODING), 1),
            ),
            checkpoint=checkpoint,
        )

    def _fit(self, load: Load, model: Model, device: Device) -> Limits:
        """The context first; then slots to keep ended sequences in, from what it leaves."""

        def limits(context_length: int, n_kept: int = 0) -> Limits:
            return Limits(
                max_tokens=max(min(self.max_step_tokens, context_length), load.max_concurrent),
                max_outputs=load.max_concurrent,
                n_slots=load.max_concurrent + n_kept,
                max_seq=context_length,
                kv_cache=load.kv_cache,
                graphs=load.graphs,
            )

        def nbytes(context_length: int, n_kept: int = 0) -> int:
            return device.load_nbytes(model.program, limits(context_length, n_kept))

        free_nbytes = device.free_nbytes()
        context_length = fit_context(nbytes, wanted=load.max_seq, trained=model.context_length, free_nbytes=free_nbytes)
        if not load.prefix_cache:
            return limits(context_length)
        model_nbytes = nbytes(context_length)
        n_kept = fit_kept_slots(
            slot_nbytes=nbytes(context_length, 1) - model_nbytes,
            limit_nbytes=load.prefix_cache_nbytes,
            model_nbytes=model_nbytes,
            free_nbytes=free_nbytes,
        )
        return limits(context_length, n_kept)


def _explain(context_length: int, load: Load, model: Model) -> None:
    if load.max_seq is None and context_length < model.context_length:
        log.warning(
            "context of %d tokens, not the %d that the model was trained on: memory allows no more",
            context_length,
            model.context_length,
        )
    if context_length > model.context_length:
        log.warning(
            "context of %d tokens, as asked: beyond the %d that the model was trained on its answers get worse",
            context_length,
            model.context_length,
        )
