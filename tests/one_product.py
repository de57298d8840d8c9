"""The smallest Program with a matrix in it, and random weights of every format, for tests of devices."""

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.cpu import CpuDevice, CpuExecutable
from hipfire.dtypes import DTYPES, DType
from hipfire.program.operands import Weight
from hipfire.program.program import Builder

N_IN, N_OUT, N_VOCAB = 512, 37, 300

HALF_FIELDS = {
    "q4_0": (0,),
    "q4_1": (0, 2),
    "q5_0": (0,),
    "q5_1": (0, 2),
    "q8_0": (0,),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
}
"""Where a block keeps its half-precision scales: random bytes there would be infinite or not a number."""


def random_blocks(dtype: DType, n_elements: int, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Raw bytes of a tensor: every bit of the quants random, the scales of a sensible size and either sign."""
    if not dtype.is_quantised:
        values = rng.standard_normal(n_elements).astype(np.float32)
        if dtype.name == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(np.float16 if dtype.name == "f16" else np.float32).view(np.uint8)
    blocks = rng.integers(0, 256, (n_elements // dtype.block, dtype.block_nbytes), np.uint8)
    for offset in HALF_FIELDS[dtype.name]:
        scales = rng.uniform(-0.1, 0.1, len(blocks)).astype(np.float16)
        blocks[:, offset : offset + 2] = scales.view(np.uint8).reshape(-1, 2)
    return blocks.reshape(-1)


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
    return executable.run(step, CancelFlag()).copy()
