"""In which forms the GPU's kernels read each buffer of a Program, floats or integers of 16 bits, and where those lie.

Knows no addresses and no GPU.
"""

from collections.abc import Callable

from hipfire.devices.arena import Plan, plan_buffers
from hipfire.kernels.hip_table import Q16_TILE, Q16_TILE_NBYTES
from hipfire.program import ops
from hipfire.program.operands import Buffer
from hipfire.program.program import Program


def reads_q16(op: ops.Linear) -> bool:
    """Whether an op multiplies with quantised weights, hence reads its input as integers."""
    return any(weight.dtype.is_quantised for weight in op.weights)


def quantises_in_passing(op: ops.Op) -> bool:
    """Whether the kernel that writes an op's output can write it as integers too; others need a launch for it."""
    if isinstance(op, ops.Attention):
        # Its workgroups have a head each, and a tile is one workgroup's.
        return op.keys.head_dim % Q16_TILE == 0
    return isinstance(op, ops.RmsNorm | ops.Gated)


def floats_read(program: Program) -> set[str]:
    """Names of the buffers that some kernel, or whoever wants the logits, reads as floats."""
    names = {program.logits.name}
    for op in program.ops:
        read = [operand for operand in op.operands() if isinstance(operand, Buffer)]
        if isinstance(op, ops.Linear) and all(weight.dtype.is_quantised for weight in op.weights):
            read = [operand for operand in (op.residual,) if operand is not None]
        names.update(buffer.name for buffer in read)
        if not quantises_in_passing(op):
            # A launch of its own reads them, where anybody wants the integers.
            names.add(op.out.name)
    return names


def plan_program(program: Program, n_rows: Callable[[Buffer], int], *, keep: bool) -> Plan:
    """Where the buffers' forms lie that are read; with `keep` the floats of all: see `plan_buffers`."""
    quantised = {op.x.name for op in program.ops if isinstance(op, ops.Linear) and reads_q16(op)}
    return plan_buffers(
        program,
        n_rows,
        lambda buffer: buffer.width // Q16_TILE * Q16_TILE_NBYTES if buffer.name in quantised else 0,
        without_floats=quantised - floats_read(program),
        keep=keep,
    )
