"""Every op of `program.ops` in NumPy float32, as plainly as it can be said: one function an op, one row a function.

Rows are reproducible: what an op does to a row does not depend on the other rows of the step. Reductions are over a
row of fixed length, attention goes row by row, and matrix products (see `_product`) always have the same shape. That
last is as good as the BLAS library that NumPy has: OpenBLAS gives equal bits, others need not.
Knows no memory limits and no schedule.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.devices.base import Step
from hipfire.program import ops

Floats = NDArray[np.float32]

# Rows in one matrix product. More are faster for long prompts, fewer for a single token.
_PRODUCT_ROWS = 16


@attrs.frozen(kw_only=True, eq=False)
class Frame:
    """What ops read and write during one step, by name.

    `weights` are dequantised and of the Weight's shape. `states` are [slot, position, kv_head, head_dim]. `buffers`
    hold what the ops before this one wrote, of the Buffer's shape.
    """

    step: Step
    weights: Mapping[str, Floats]
    states: Mapping[str, Floats]
    buffers: Mapping[str, Floats]


def _embed(op: ops.Embed, frame: Frame) -> Floats:
    return frame.weights[op.table.name][frame.step.token_ids] * np.float32(op.scale)


def _rms_norm(op: ops.RmsNorm, frame: Frame) -> Floats:
    out = _normalised(frame.buffers[op.x.name], frame.weights[op.weight.name], op.eps)
    return out if op.residual is None else out + frame.buffers[op.residual.name]


def _normalised(x: Floats, weight: Floats, eps: float) -> Floats:
    """RmsNorm over the last axis."""
    mean_square: Floats = np.mean(x * x, axis=-1, keepdims=True)
    out: Floats = x / np.sqrt(mean_square + np.float32(eps)) * weight
    return out


def _linear(op: ops.Linear, frame: Frame) -> Floats:
    x = frame.buffers[op.x.name]
    parts = []
    for weight, bias in zip(op.weights, op.biases, strict=True):
        part = _product(x, frame.weights[weight.name])
        parts.append(part if bias is None else part + frame.weights[bias.name])
    out = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
    return out if op.residual is None else out + frame.buffers[op.residual.name]


def _product(x: Floats, weight: Floats) -> Floats:
    """The product x @ weight.T, in products of _PRODUCT_ROWS rows each, the last filled up with zeros.

    BLAS picks the order of its additions by the number of rows; with one number of rows there is one order.
    """
    n_rows, n_in = x.shape
    n_products = -(-n_rows // _PRODUCT_ROWS)
    padded = np.zeros((n_products, _PRODUCT_ROWS, n_in), np.float32)
    padded.reshape(-1, n_in)[:n_rows] = x
    products: Floats = np.matmul(padded, weight.T)
    return products.reshape(n_products * _PRODUCT_ROWS, weight.shape[0])[:n_rows]


def _rope_angles(op: ops.RopeAngles, frame: Frame) -> Floats:
    angles = frame.step.positions.astype(np.float32)[:, None] * op.inverse_frequencies.value
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1) * np.float32(op.scale)


def _rope_store(op: ops.RopeStore, frame: Frame) -> Floats:
    n_heads, n_kv_heads, head_dim = op.n_heads, op.keys.n_kv_heads, op.keys.head_dim
    heads = frame.buffers[op.qkv.name].reshape(-1, n_heads + 2 * n_kv_heads, head_dim)
    q, k, v = np.split(heads, [n_heads, n_heads + n_kv_heads], axis=1)
    if op.q_norm is not None:
        q = _normalised(q, frame.weights[op.q_norm.name], op.eps)
    if op.k_norm is not None:
        k = _normalised(k, frame.weights[op.k_norm.name], op.eps)
    angles = frame.buffers[op.angles.name]
    at = (frame.step.slots, frame.step.positions)
    frame.states[op.keys.name][at] = _rotated(k, angles, interleaved=op.interleaved)
    frame.states[op.values.name][at] = v
    return _rotated(q, angles, interleaved=op.interleaved).reshape(-1, n_heads * head_dim)


def _rotated(x: Floats, angles: Floats, *, interleaved: bool) -> Floats:
    """Turn the first elements of each head. x [rows, heads, head_dim], angles [rows, cosines and then sines]."""
    n_rot = angles.shape[1]
    half = n_rot // 2
    cos, sin = angles[:, None, :half], angles[:, None, half:]
    first = slice(0, n_rot, 2) if interleaved else slice(0, half)
    second = slice(1, n_rot, 2) if interleaved else slice(half, n_rot)
    a, b = x[..., first], x[..., second]
    out = x.copy()
    out[..., first] = a * cos - b * sin
    out[..., second] = a * sin + b * cos
    return out


def _attention(op: ops.Attention, frame: Frame) -> Floats:
    q = frame.buffers[op.q.name]
    n_kv_heads, head_dim = op.keys.n_kv_heads, op.keys.head_dim
    heads = q.reshape(len(q), n_kv_heads, op.n_heads // n_kv_heads, head_dim)
    out = np.empty_like(heads)
    for row, (slot, position) in enumerate(zip(frame.step.slots, frame.step.positions, strict=True)):
        end = position + 1
        start = 0 if op.window is None else max(0, end - op.window)
        keys = frame.states[op.keys.name][slot, start:end]
        values = frame.states[op.values.name][slot, start:end]
        scores = np.matmul(heads[row], keys.transpose(1, 2, 0)) * np.float32(op.scale)
        out[row] = np.matmul(_softmax(scores), values.transpose(1, 0, 2))
    return out.reshape(q.shape)


def _softmax(scores: Floats) -> Floats:
    exponentials = np.exp(scores - scores.max(axis=-1, keepdims=True))
    out: Floats = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return out


def _silu(x: Floats) -> Floats:
    out: Floats = x / (1 + np.exp(-x))
    return out


def _gelu_tanh(x: Floats) -> Floats:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    out: Floats = np.float32(0.5) * x * (1 + np.tanh(inner))
    return out


_ACTIVATIONS: Mapping[ops.Activation, Callable[[Floats], Floats]] = MappingProxyType(
    {"silu": _silu, "gelu_tanh": _gelu_tanh}
)


def _gated(op: ops.Gated, frame: Frame) -> Floats:
    gate, up = np.split(frame.buffers[op.x.name], 2, axis=1)
    return _ACTIVATIONS[op.activation](gate) * up


def _gather_outputs(op: ops.GatherOutputs, frame: Frame) -> Floats:
    return frame.buffers[op.x.name][frame.step.output_rows]


_OPS: Mapping[type[ops.Op], Callable[..., Floats]] = MappingProxyType(
    {
        ops.Embed: _embed,
        ops.RmsNorm: _rms_norm,
        ops.Linear: _linear,
        ops.RopeAngles: _rope_angles,
        ops.RopeStore: _rope_store,
        ops.Attention: _attention,
        ops.Gated: _gated,
        ops.GatherOutputs: _gather_outputs,
    }
)
"""Each function takes the op of its key and a Frame, and returns what belongs into the op's `out`."""


def evaluate(op: ops.Op, frame: Frame) -> Floats:
    """What the op writes to its `out`; RopeStore writes to the frame's states too."""
    return _OPS[type(op)](op, frame)
