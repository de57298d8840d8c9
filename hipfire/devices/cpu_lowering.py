"""From a Program to the structs that the compiled kernels run: where each buffer lies, and one C op after the other.

Knows addresses and layouts; allocates nothing. `devices.cpu` owns the memory.
"""

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from hipfire.devices.arena import Plan, plan_buffers
from hipfire.kernels.library import ACTIVATIONS, CpuOp, Matrix, OpKind
from hipfire.program import ops
from hipfire.program.operands import Buffer, Symbol, Weight
from hipfire.program.program import Program

ROW_WISE = (ops.RmsNorm, ops.Gated, ops.GatherOutputs)
"""Ops whose kernels write their rows as int16 too, or only so; the outputs of others need an op for it."""


def reads_q16(op: ops.Linear) -> bool:
    """Whether an op multiplies with quantised weights, hence reads its input as int16."""
    return any(weight.dtype.is_quantised for weight in op.weights)


def plan_program(
    program: Program, n_rows: Callable[[Buffer], int], q16_row_nbytes: Callable[[int], int], *, keep: bool
) -> Plan:
    """Where the buffers lie, each in the forms that kernels read: see `plan_buffers`."""
    quantised = {op.x.name for op in program.ops if isinstance(op, ops.Linear) and reads_q16(op)}
    row_wise = {op.out.name for op in program.ops if isinstance(op, ROW_WISE)}
    without_floats = (quantised & row_wise) - _read_as_floats(program)

    def row_nbytes(buffer: Buffer) -> int:
        return q16_row_nbytes(buffer.width) if buffer.name in quantised else 0

    return plan_buffers(program, n_rows, row_nbytes, without_floats=without_floats, keep=keep)


def _read_as_floats(program: Program) -> set[str]:
    """Names of the buffers that something reads as floats: all, but for inputs of quantised weights alone."""
    names = {program.logits.name}
    for op in program.ops:
        read = {operand.name for operand in op.operands() if isinstance(operand, Buffer)}
        if isinstance(op, ops.Linear) and all(weight.dtype.is_quantised for weight in op.weights):
            read -= {op.x.name}
            if op.residual is not None:
                read.add(op.residual.name)
        names |= read
    return names


@attrs.frozen(kw_only=True, eq=False)
class Addresses:
    """Where everything lies, for the ops to point at."""

    arena: int
    plan: Plan
    vectors: Mapping[str, int]
    """float32 vectors: norms, biases, constants."""
    packed: Mapping[str, int]
    """Matrices, packed."""
    states: Mapping[str, int]
    formats: Mapping[str, int]
    kv_format: int
    max_seq: int
    arrays: list[object] = attrs.field(factory=list, init=False)
    """Of `struct matrix`: what `matrices` made, kept alive."""

    def floats(self, buffer: Buffer | None) -> int | None:
        """A buffer's floats; null for no buffer, and where nobody reads them."""
        region = None if buffer is None else self.plan.floats.get(buffer.name)
        return None if region is None else self.arena + region.offset

    def q16(self, buffer: Buffer) -> int | None:
        """A buffer's int16 form; null where nobody reads it."""
        region = self.plan.quantised.get(buffer.name)
        return None if region is None else self.arena + region.offset

    def matrices(self, weights: tuple[Weight, ...], biases: tuple[Weight | None, ...]) -> dict[str, int]:
        """The fields of an op that multiplies: an array of `struct matrix`, outputs side by side. It lives as long as
        this does.
        """
        array = (Matrix * len(weights))()
        column = 0
        for entry, weight, bias in zip(array, weights, biases, strict=True):
            n_out, n_in = weight.shape
            entry.packed = self.packed[weight.name]
            entry.bias = self.vector(bias)
            entry.n_out, entry.n_in, entry.column = n_out, n_in, column
            entry.format = self.formats[weight.dtype.name]
            column += n_out
        self.arrays.append(array)
        return {"matrices": ctypes.addressof(array), "n_matrices": len(weights)}

    def vector(self, weight: Weight | None) -> int | None:
        """A vector's floats; null for none."""
        return None if weight is None else self.vectors[weight.name]


def lower(program: Program, at: Addresses) -> list[CpuOp]:
    """One C op for each op of the program, and one to quantise where a kernel cannot do it in passing.

    `at` owns arrays that the ops point at, and must outlive them.
    """
    lowered: list[CpuOp] = []
    for op in program.ops:
        lowered.append(LOWER[type(op)](op, at))
        if isinstance(op, ROW_WISE):
            lowered[-1].out_q16 = at.q16(op.out)
        elif at.q16(op.out) is not None:
            lowered.append(_op(OpKind.QUANTISE, op.out, at, x=at.floats(op.out), width_in=op.out.width))
            lowered[-1].out_q16 = at.q16(op.out)
    return lowered


def _op(kind: OpKind, buffer: Buffer, at: Addresses, **fields: float | None) -> CpuOp:
    per_output = int(buffer.shape[0] is Symbol.N_OUTPUTS)
    return CpuOp(kind=kind, per_output=per_output, out=at.floats(buffer), width_out=buffer.width, **fields)


def _embed(op: ops.Embed, at: Addresses) -> CpuOp:
    return _op(OpKind.EMBED, op.out, at, scale=op.scale, **at.matrices((op.table,), (None,)))


def _rms_norm(op: ops.RmsNorm, at: Addresses) -> CpuOp:
    return _op(
        OpKind.RMS_NORM,
        op.out,
        at,
        x=at.floats(op.x),
        weight=at.vector(op.weight),
        residual=at.floats(op.residual),
        width_in=op.x.width,
        eps=op.eps,
    )


def _linear(op: ops.Linear, at: Addresses) -> CpuOp:
    return _op(
        OpKind.LINEAR,
        op.out,
        at,
        x=at.floats(op.x),
        x_q16=at.q16(op.x),
        residual=at.floats(op.residual),
        width_in=op.x.width,
        **at.matrices(op.weights, op.biases),
    )


def _rope_angles(op: ops.RopeAngles, at: Addresses) -> CpuOp:
    return _op(
        OpKind.ROPE_ANGLES,
        op.out,
        at,
        weight=at.vectors[op.inverse_frequencies.name],
        n_rot=op.out.width,
        scale=op.scale,
    )


def _rope_store(op: ops.RopeStore, at: Addresses) -> CpuOp:
    return _op(
        OpKind.ROPE_STORE,
        op.out,
        at,
        x=at.floats(op.qkv),
        angles=at.floats(op.angles),
        q_norm=at.vector(op.q_norm),
        k_norm=at.vector(op.k_norm),
        width_in=op.qkv.width,
        n_rot=op.angles.width,
        interleaved=int(op.interleaved),
        eps=op.eps,
        **_state(op, at),
    )


def _attention(op: ops.Attention, at: Addresses) -> CpuOp:
    return _op(
        OpKind.ATTENTION,
        op.out,
        at,
        x=at.floats(op.q),
        width_in=op.q.width,
        scale=op.scale,
        window=op.window or 0,
        **_state(op, at),
    )


def _state(op: ops.RopeStore | ops.Attention, at: Addresses) -> dict[str, int]:
    return {
        "keys": at.states[op.keys.name],
        "values": at.states[op.values.name],
        "n_heads": op.n_heads,
        "n_kv_heads": op.keys.n_kv_heads,
        "head_dim": op.keys.head_dim,
        "kv_format": at.kv_format,
        "max_seq": at.max_seq,
    }


def _gated(op: ops.Gated, at: Addresses) -> CpuOp:
    return _op(
        OpKind.GATED,
        op.out,
        at,
        x=at.floats(op.x),
        width_in=op.x.width,
        activation=ACTIVATIONS[op.activation],
    )


def _gather_outputs(op: ops.GatherOutputs, at: Addresses) -> CpuOp:
    return _op(OpKind.GATHER_OUTPUTS, op.out, at, x=at.floats(op.x), width_in=op.x.width)


LOWER: Mapping[type[ops.Op], Callable[[Any, Addresses], CpuOp]] = {
    ops.Embed: _embed,
    ops.RmsNorm: _rms_norm,
    ops.Linear: _linear,
    ops.RopeAngles: _rope_angles,
    ops.RopeStore: _rope_store,
    ops.Attention: _attention,
    ops.Gated: _gated,
    ops.GatherOutputs: _gather_outputs,
}
"""One row an op."""
