"""A Program: what a model does in one step, as data, and the builder that models use to write one."""

from collections.abc import Sequence

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.program import ops
from hipfire.program.operands import Buffer, Constant, Dim, KvState, Symbol, Weight


@attrs.frozen(kw_only=True, eq=False)
class Program:
    """`ops` in the order in which they run; `logits` [n_outputs, n_vocab] is what a step is run for."""

    ops: tuple[ops.Op, ...]
    logits: Buffer
    states: tuple[KvState, ...]

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Every weight that an op uses, once, in order of first use."""
        found: dict[str, Weight] = {}
        for op in self.ops:
            for operand in op.operands():
                if isinstance(operand, Weight):
                    found.setdefault(operand.name, operand)
        return tuple(found.values())

    @property
    def last_reads(self) -> dict[str, int]:
        """By a buffer's name, the index of the op after which nothing needs it: its last reader, or its writer.

        The logits are needed after every op, so theirs is the number of ops.
        """
        last = {}
        for index, op in enumerate(self.ops):
            last[op.out.name] = index
            last.update((operand.name, index) for operand in op.operands() if isinstance(operand, Buffer))
        last[self.logits.name] = len(self.ops)
        return last

    def __str__(self) -> str:
        return "\n".join(_line(op) for op in self.ops)


def _line(op: ops.Op) -> str:
    operands = []
    for name, value in attrs.asdict(op, recurse=False).items():
        if name == "out":
            continue
        if isinstance(value, tuple):
            text = "[" + ", ".join("-" if part is None else part.name for part in value) + "]"
        else:
            text = str(getattr(value, "name", value))
        operands.append(f"{name}={text}")
    shape = ", ".join(dim.value if isinstance(dim, Symbol) else str(dim) for dim in op.out.shape)
    return f"{op.out.name}[{shape}] = {type(op).__name__}({', '.join(operands)})"


class Builder:
    """Collects ops in order. Each method emits one op and returns the buffer that it writes."""

    def __init__(self) -> None:
        self._ops: list[ops.Op] = []
        self._states: list[KvState] = []
        self._names: set[str] = set()
        self._buffers: set[Buffer] = set()

    def embed(self, name: str, table: Weight, *, scale: float = 1.0) -> Buffer:
        out = self._buffer(name, Symbol.N_TOKENS, table.shape[1])
        return self._emit(ops.Embed(out=out, table=table, scale=scale))

    def rms_norm(self, name: str, x: Buffer, weight: Weight, *, eps: float, residual: Buffer | None = None) -> Buffer:
        out = self._buffer(name, *x.shape)
        return self._emit(ops.RmsNorm(out=out, x=x, weight=weight, eps=eps, residual=residual))

    def linear(
        self,
        name: str,
        x: Buffer,
        weights: Sequence[Weight],
        *,
        biases: Sequence[Weight | None] | None = None,
        residual: Buffer | None = None,
    ) -> Buffer:
        out = self._buffer(name, x.shape[0], sum(weight.shape[0] for weight in weights))
        return self._emit(
            ops.Linear(
                out=out,
                x=x,
                weights=tuple(weights),
                biases=tuple(biases) if biases is not None else (None,) * len(weights),
                residual=residual,
            )
        )

    def rope_angles(self, name: str, inverse_frequencies: NDArray[np.float32], *, scale: float = 1.0) -> Buffer:
        table = Constant(name=f"{name}.inverse_frequencies", value=inverse_frequencies)
        out = self._buffer(name, Symbol.N_TOKENS, 2 * inverse_frequencies.size)
        return self._emit(ops.RopeAngles(out=out, inverse_frequencies=table, scale=scale))

    def kv_state(self, name: str, *, n_kv_heads: int, head_dim: int) -> KvState:
        self._claim(name)
        state = KvState(name=name, n_kv_heads=n_kv_heads, head_dim=head_dim)
        self._states.append(state)
        return state

    def rope_store(
        self,
        name: str,
        qkv: Buffer,
        angles: Buffer,
        *,
        keys: KvState,
        values: KvState,
        n_heads: int,
        interleaved: bool,
        q_norm: Weight | None = None,
        k_norm: Weight | None = None,
        eps: float = 0.0,
    ) -> Buffer:
        out = self._buffer(name, Symbol.N_TOKENS, n_heads * keys.head_dim)
        return self._emit(
            ops.RopeStore(
                out=out,
                qkv=qkv,
                angles=angles,
                keys=keys,
                values=values,
                n_heads=n_heads,
                interleaved=interleaved,
                q_norm=q_norm,
                k_norm=k_norm,
                eps=eps,
            )
        )

    def attention(
        self,
        name: str,
        q: Buffer,
        *,
        keys: KvState,
        values: KvState,
        n_heads: int,
        scale: float,
        window: int | None = None,
    ) -> Buffer:
        out = self._buffer(name, *q.shape)
        return self._emit(
            ops.Attention(out=out, q=q, keys=keys, values=values, n_heads=n_heads, scale=scale, window=window)
        )

    def gated(self, name: str, x: Buffer, *, activation: ops.Activation) -> Buffer:
        out = self._buffer(name, x.shape[0], x.width // 2)
        return self._emit(ops.Gated(out=out, x=x, activation=activation))

    def gather_outputs(self, name: str, x: Buffer) -> Buffer:
        return self._emit(ops.GatherOutputs(out=self._buffer(name, Symbol.N_OUTPUTS, *x.shape[1:]), x=x))

    def finish(self, logits: Buffer) -> Program:
        """The Program whose result is `logits` [n_outputs, n_vocab]."""
        if logits not in self._buffers or logits.shape[0] is not Symbol.N_OUTPUTS:
            raise ops.ShapeError(f"{logits.name} is not a result with a row for each output")
        return Program(ops=tuple(self._ops), logits=logits, states=tuple(self._states))

    def _claim(self, name: str) -> None:
        if name in self._names:
            raise ops.ShapeError(f"two buffers or states are called {name}")
        self._names.add(name)

    def _buffer(self, name: str, *shape: Dim) -> Buffer:
        self._claim(name)
        return Buffer(name=name, shape=shape)

    def _emit(self, op: ops.Op) -> Buffer:
        op.check()
        for operand in op.operands():
            if isinstance(operand, Buffer) and operand not in self._buffers:
                raise ops.ShapeError(f"{op.out.name} reads {operand.name}, which no op before it writes")
        self._ops.append(op)
        self._buffers.add(op.out)
        return op.out
