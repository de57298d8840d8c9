"""The smallest Program with a matrix in it, and random weights of every format, for tests of devices."""

import numpy as np
from devices.random_model import random_bytes
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.cpu import CpuDevice, CpuExecutable
from hipfire.dtypes import DTYPES, DType
from hipfire.program.operands import Weight
from hipfire.program.program import Builder

N_IN, N_OUT, N_VOCAB = 512, 37, 300


def random_weight(dtype: DType, seed: int) -> NDArray[np.uint8]:
    """Raw bytes of the matrix."""
    return random_bytes(np.random.default_rng(seed), dtype, (N_OUT, N_IN), 1.0)


def load(
    dtype: DType, raw: NDArray[np.uint8], inputs: NDArray[np.float32], *, variant: str, n_threads: int = 2
) -> CpuExecutable:
    """Logits = inputs[token ids] @ weight.T"""
    builder = Builder()
    table = Weight(name="table", dtype=DTYPES["f32"], shape=inputs.shape)
    x = builder.gather_outputs("x", builder.embed("rows", table))
    logits = builder.linear("logits", x, (Weight(name="weight", dtype=dtype, shape=(N_OUT, N_IN)),))
    limits = Limits(max_tokens=N_VOCAB, max_outputs=N_VOCAB, n_slots=1, max_seq=N_VOCAB)
    tensors = {"table": inputs.view(np.uint8).reshape(-1), "weight": raw}
    device = CpuDevice.open(n_threads, variant=variant)
    return device.load(builder.finish(logits), tensors, limits, on_progress=lambda fraction: None)


def run(executable: CpuExecutable, ids: NDArray[np.int32]) -> NDArray[np.float32]:
    rows = np.arange(len(ids), dtype=np.int32)
    step = Step(token_ids=ids, positions=rows, slots=np.zeros_like(rows), output_rows=rows)
    return executable.run(step, CancelFlag()).whole().copy()
