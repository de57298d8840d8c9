"""The op vocabulary. Each op is a frozen record of its operands; `check` is its shape rule.

Every step has these inputs, implicit in the ops that use them (see `devices.base.Step`): token_ids, positions,
slots [n_tokens] and output_rows [n_outputs]. Activations are float32 for whoever looks at them from outside; a device
may keep them in another form.
"""

from typing import Literal

import attrs

from hipfire.program.operands import Buffer, Constant, KvState, Symbol, Weight


class ShapeError(ValueError):
    """The operands of an op do not fit together: a fault of the model's code or of its file."""


def require(condition: bool, op: "Op", what: str) -> None:
    """Raise ShapeError unless the condition holds."""
    if not condition:
        raise ShapeError(f"{type(op).__name__} -> {op.out.name}: {what}")


@attrs.frozen(kw_only=True, eq=False)
class Op:
    """`out` is the buffer that the op writes, whole rows of it, each row by itself."""

    out: Buffer

    def check(self) -> None:
        """Raise ShapeError where the operands do not fit together."""
        raise NotImplementedError


@attrs.frozen(kw_only=True, eq=False)
class Embed(Op):
    """out[i] = scale * table[token_ids[i]]; table (n_vocab, n)."""

    table: Weight
    scale: float = 1.0

    def check(self) -> None:
        require(self.out.shape == (Symbol.N_TOKENS, self.table.shape[1]), self, "width is not the table's")


@attrs.frozen(kw_only=True, eq=False)
class RmsNorm(Op):
    """out = x / sqrt(mean(x**2) + eps) * weight + residual, row by row; weight (n,)."""

    x: Buffer
    weight: Weight
    eps: float
    residual: Buffer | None = None

    def check(self) -> None:
        require(self.out.shape == self.x.shape, self, "not of the input's shape")
        require(self.weight.shape == (self.x.width,), self, f"norm weight {self.weight.shape} for {self.x.width}")
        require(self.residual is None or self.residual.shape == self.out.shape, self, "residual does not fit")


@attrs.frozen(kw_only=True, eq=False)
class Linear(Op):
    """out = [x @ w.T + bias for each w, side by side] + residual.

    `weights` all have shape (n_out_j, n_in); `biases` has an entry for each of them, None where there is none.
    """

    x: Buffer
    weights: tuple[Weight, ...]
    biases: tuple[Weight | None, ...]
    residual: Buffer | None = None

    def check(self) -> None:
        for weight, bias in zip(self.weights, self.biases, strict=True):
            require(len(weight.shape) == 2, self, f"{weight.name} is not a matrix")
            require(weight.shape[1] == self.x.width, self, f"{weight.name} {weight.shape} for {self.x.width} inputs")
            require(bias is None or bias.shape == weight.shape[:1], self, f"bias of {weight.name} does not fit")
        n_out = sum(weight.shape[0] for weight in self.weights)
        require(self.out.shape == (self.x.shape[0], n_out), self, f"{n_out} outputs in {self.out.shape}")
        require(self.residual is None or self.residual.shape == self.out.shape, self, "residual does not fit")


@attrs.frozen(kw_only=True, eq=False)
class RopeAngles(Op):
    """out[i] = [cos(p * f) * scale..., sin(p * f) * scale...] with p = positions[i], f each of inverse_frequencies.

    float32 throughout, as the reference implementations have it. out is [n_tokens, 2 * len(f)].
    """

    inverse_frequencies: Constant
    scale: float = 1.0

    def check(self) -> None:
        require(self.out.shape == (Symbol.N_TOKENS, 2 * self.inverse_frequencies.value.size), self, "width")


@attrs.frozen(kw_only=True, eq=False)
class RopeStore(Op):
    """Normalise and rotate Q and K, keep K and V.

    qkv is [n_tokens, (n_heads + 2 n_kv_heads) * head_dim]: all of Q, then K, then V. With `q_norm` and `k_norm`
    (head_dim,) each head of Q and of K first goes through RmsNorm with `eps`. The first n_rot = 2 * len(f)
    elements of each head of Q and K are rotated by `angles`; pairs are (2i, 2i+1) when `interleaved`, else
    (i, i + n_rot / 2). Q goes to out [n_tokens, n_heads * head_dim]; K and V to keys and values at
    [slots[i]][positions[i]].
    """

    qkv: Buffer
    angles: Buffer
    keys: KvState
    values: KvState
    n_heads: int
    interleaved: bool
    q_norm: Weight | None = None
    k_norm: Weight | None = None
    eps: float = 0.0

    def check(self) -> None:
        head_dim, n_kv_heads = self.keys.head_dim, self.keys.n_kv_heads
        require(self.values.head_dim == head_dim and self.values.n_kv_heads == n_kv_heads, self, "K and V differ")
        require(self.qkv.width == (self.n_heads + 2 * n_kv_heads) * head_dim, self, f"qkv is {self.qkv.width} wide")
        require(self.out.shape == (Symbol.N_TOKENS, self.n_heads * head_dim), self, "Q does not fit")
        for norm in (self.q_norm, self.k_norm):
            require(norm is None or norm.shape == (head_dim,), self, "head norm does not fit")
        require(self.angles.width <= head_dim and self.angles.width % 2 == 0, self, "rotates more than a head")


@attrs.frozen(kw_only=True, eq=False)
class Attention(Op):
    """Causal attention of each row over its own slot's positions 0..positions[i], a group of Q heads a KV head.

    out[i, h] = softmax(scale * q[i, h] @ keys[slots[i], :positions[i] + 1, h // group].T) @ values[...].
    With a `window` only the last that many positions are seen.
    """

    q: Buffer
    keys: KvState
    values: KvState
    n_heads: int
    scale: float
    window: int | None = None

    def check(self) -> None:
        require(self.n_heads % self.keys.n_kv_heads == 0, self, "heads are no multiple of KV heads")
        require(self.q.width == self.n_heads * self.keys.head_dim, self, f"q is {self.q.width} wide")
        require(self.out.shape == self.q.shape, self, "not of q's shape")


Activation = Literal["silu", "gelu_tanh"]


@attrs.frozen(kw_only=True, eq=False)
class Gated(Op):
    """out = activation(x[:, :n]) * x[:, n:], n half of x's width (gate first, then up)."""

    x: Buffer
    activation: Activation

    def check(self) -> None:
        require(self.x.width % 2 == 0, self, f"{self.x.width} is odd")
        require(self.out.shape == (self.x.shape[0], self.x.width // 2), self, "not half the input's width")


@attrs.frozen(kw_only=True, eq=False)
class GatherOutputs(Op):
    """out[j] = x[output_rows[j]]: the rows whose logits are wanted."""

    x: Buffer

    def check(self) -> None:
        require(self.out.shape == (Symbol.N_OUTPUTS, *self.x.shape[1:]), self, "not of the input's width")
