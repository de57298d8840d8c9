"""The op vocabulary. Each op is a frozen record of its operands; `check` is its shape rule.

Every step has these inputs, implicit in the ops that use them (see `devices.base.Step`): token_ids, positions,
slots [n_tokens] and output_rows [n_outputs]. Activations are float32 for whoever looks at them from outside; a device
may keep them in another form.
"""

import abc
from collections.abc import Iterator
from typing import Literal

import attrs

from hipfire.program.operands import Buffer, Constant, KvState, Symbol, Weight

Operand = Buffer | Weight | Constant | KvState


class ShapeError(ValueError):
    """The operands of an op do not fit together: a fault of the model's code or of its file."""


def require(condition: bool, op: "Op", what: str) -> None:
    """Raise ShapeError unless the condition holds."""
    if not condition:
        raise ShapeError(f"{type(op).__name__} -> {op.out.name}: {what}")


@attrs.frozen(kw_only=True, eq=False)
class Op(abc.ABC):
    """`out` is the buffer that the op writes, whole rows of it, each row by itself."""

    out: Buffer

    @abc.abstractmethod
    def check(self) -> None:
        """Raise ShapeError where the operands do not fit together."""

    def operands(self) -> Iterator[Operand]:
        """Every operand but `out`, in the order in which the op declares them."""
        for name, value in attrs.asdict(self, recurse=False).items():
            if name == "out":
                continue
            for operand in value if isinstance(value, tuple) else (value,):
                if isinstance(operand, Operand):
                    yield operand


def require_matrix(weight: Weight, op: Op) -> None:
    """Raise ShapeError unless the weight is a matrix whose rows are whole blocks of its dtype."""
    require(len(weight.shape) == 2, op, f"{weight.name} {weight.shape} is not a matrix")
    whole = weight.shape[1] % weight.dtype.block == 0
    require(whole, op, f"a row of {weight.name} {weight.shape} is no whole number of {weight.dtype.name} blocks")


@attrs.frozen(kw_only=True, eq=False)
class Embed(Op):
    """out[i] = scale * table[token_ids[i]]; table (n_vocab, n)."""

    table: Weight
    scale: float = 1.0

    def check(self) -> None:
        require_matrix(self.table, self)
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
        require(len(self.weights) == len(self.biases) > 0, self, "not one bias, or None, for each weight")
        for weight, bias in zip(self.weights, self.biases, strict=True):
            require_matrix(weight, self)
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
        require(self.keys is not self.values, self, "K and V are one state")
        require(self.values.head_dim == head_dim and self.values.n_kv_heads == n_kv_heads, self, "K and V differ")
        require(self.qkv.shape[0] is self.angles.shape[0] is Symbol.N_TOKENS, self, "not a row for each token")
        require(self.qkv.width == (self.n_heads + 2 * n_kv_heads) * head_dim, self, f"qkv is {self.qkv.width} wide")
        require(self.out.shape == (Symbol.N_TOKENS, self.n_heads * head_dim), self, "Q does not fit")
        for norm in (self.q_norm, self.k_norm):
            require(norm is None or norm.shape == (head_dim,), self, "head norm does not fit")
        fits = self.angles.width <= head_dim and self.angles.width % 2 == 0
        require(fits, self, f"rotates {self.angles.width} elements of {head_dim}")


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
        require(self.window is None or self.window > 0, self, f"a window of {self.window}")
        require(self.q.shape[0] is Symbol.N_TOKENS, self, "not a row for each token")
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
        require(self.x.shape[0] is Symbol.N_TOKENS, self, "not a row for each token")
        require(self.out.shape == (Symbol.N_OUTPUTS, *self.x.shape[1:]), self, "not of the input's width")
