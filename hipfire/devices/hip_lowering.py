"""From a Program to kernel launches: which kernel, on how many workgroups, with which arguments.

Knows addresses and shapes; allocates nothing and calls nothing. `devices.hip` owns the memory.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import attrs

from hipfire.devices.arena import Plan
from hipfire.devices.hip_plan import quantises_in_passing
from hipfire.kernels.hip_table import CHUNK, KERNELS, QUAD, QUERIES_AT_ONCE, SLICE, STATS
from hipfire.kernels.linear_kinds import GROUP, choose_kind, kinds_of
from hipfire.program import ops
from hipfire.program.operands import Buffer, Symbol, Weight
from hipfire.program.program import Program

MAX_DECODING = 64
"""Rows of a step that each are of another sequence. A guess that is wrong costs time only."""

ENOUGH_WORKGROUPS = 512
"""Of attention: with as many there is work for a whole GPU, and each goes through all positions that its rows see."""


@attrs.frozen
class LaunchSpec:
    """One launch: the kernel's name, its grid in workgroups, its arguments by name."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]


@attrs.frozen(kw_only=True)
class StepShape:
    """What the launches of a step depend on.

    `n_chunks`: those of the longest sequence in it, and perhaps more. `n_best`, of BEST_COUNTS: the highest logits that
    it looks for.
    """

    n_tokens: int
    n_outputs: int
    n_chunks: int
    n_best: int = 0

    @property
    def is_decode(self) -> bool:
        """Whether every row's logits are wanted: a step that sequences repeat, token by token."""
        return self.n_tokens == self.n_outputs

    def n_rows(self, buffer: Buffer) -> int:
        return self.n_outputs if buffer.shape[0] is Symbol.N_OUTPUTS else self.n_tokens


@attrs.frozen(kw_only=True, eq=False)
class Addresses:
    """Where everything lies on the device."""

    arena: int
    plan: Plan
    weights: Mapping[str, int]
    """Packed matrices, float32 vectors, constants."""
    nbytes: Mapping[str, int]
    """Of each packed matrix and float32 vector."""
    states: Mapping[str, int]
    host_step: int
    """Where kernels find the step's numbers as the host wrote them."""
    max_tokens: int
    token_ids: int
    """The first of the step's numbers on the device."""
    positions: int
    slots: int
    output_rows: int
    partials: int
    partials_nbytes: int
    """Room for partial results of attention."""
    kv_cache: str
    max_seq: int
    lists: int
    """The highest logits of every slice of the vocabulary."""
    best: int
    """Of every output row the highest logits: an id (int32) and a value (float32) each."""
    arch: str
    n_compute_units: int

    def buffer(self, buffer: Buffer | None) -> int | None:
        """A buffer's floats; null for none."""
        return None if buffer is None else self.arena + self.plan.floats[buffer.name].offset

    def out(self, buffer: Buffer) -> int | None:
        """Where an op writes a buffer's floats; null where nobody reads them."""
        region = self.plan.floats.get(buffer.name)
        return None if region is None else self.arena + region.offset

    def q16(self, buffer: Buffer) -> int | None:
        """A buffer as integers of 16 bits; null where nobody reads those."""
        region = self.plan.quantised.get(buffer.name)
        return None if region is None else self.arena + region.offset

    def follows(self, weight: Weight | None, other: Weight | None) -> bool:
        """Whether the other begins where the weight ends, and no row group is shared."""
        if weight is None or other is None or weight.shape[0] % GROUP:
            return False
        return self.weights[weight.name] + self.nbytes[weight.name] == self.weights[other.name]

    def weight(self, weight: Weight | None) -> int | None:
        return None if weight is None else self.weights[weight.name]


def lower(program: Program, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    """The launches of a step of this shape, in order."""
    launches = [_fetch_step(at, shape)]
    for op in program.ops:
        if shape.n_rows(op.out):
            launches += LOWER[type(op)](op, at, shape)
            if not quantises_in_passing(op) and at.q16(op.out) is not None:
                launches.append(_quantise(op.out, at, shape))
    if shape.n_best and shape.n_outputs:
        launches += _best(program.logits, at, shape)
    return launches


def _best(logits: Buffer, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    n_slices = n_slices_of(logits.width)
    of_slices = {"logits": at.buffer(logits), "lists": at.lists, "n": logits.width, "n_best": shape.n_best}
    join = {"lists": at.lists, "out": at.best, "n_lists": n_slices, "n_best": shape.n_best}
    return [
        LaunchSpec("best_of_slices", (n_slices, shape.n_outputs, 1), of_slices),
        LaunchSpec("join_best", (shape.n_outputs, 1, 1), join),
    ]


def n_slices_of(n_vocab: int) -> int:
    """Slices that a row of logits is cut into, to look for the highest."""
    return _blocks(n_vocab, SLICE)


def _blocks(n: int, size: int) -> int:
    return -(-n // size)


def _elements(kernel: str, n: int, n_rows: int, arguments: Mapping[str, Any]) -> LaunchSpec:
    """A thread an element: columns along x, rows along y."""
    return LaunchSpec(kernel, (_blocks(n, KERNELS[kernel].n_threads), n_rows, 1), arguments)


def _fetch_step(at: Addresses, shape: StepShape) -> LaunchSpec:
    arguments = {
        "host": at.host_step,
        "step": at.token_ids,
        "n_tokens": shape.n_tokens,
        "n_outputs": shape.n_outputs,
        "max_tokens": at.max_tokens,
    }
    return _elements("fetch_step", max(shape.n_tokens, shape.n_outputs), 1, arguments)


def _quads(kernel: str, n: int, n_rows: int, arguments: Mapping[str, Any]) -> LaunchSpec:
    """A thread four elements: columns along x, rows along y."""
    return LaunchSpec(kernel, (_blocks(n, QUAD * KERNELS[kernel].n_threads), n_rows, 1), arguments)


def _quantise(buffer: Buffer, at: Addresses, shape: StepShape) -> LaunchSpec:
    arguments = {"x": at.buffer(buffer), "out_q16": at.q16(buffer), "n": buffer.width}
    return _quads("quantise", buffer.width, shape.n_rows(buffer), arguments)


def _embed(op: ops.Embed, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {
        "packed": at.weight(op.table),
        "token_ids": at.token_ids,
        "out": at.buffer(op.out),
        "n_in": op.out.width,
        "scale": op.scale,
    }
    return [_elements(f"embed_{op.table.dtype.name}", op.out.width, shape.n_tokens, arguments)]


def _rms_norm(op: ops.RmsNorm, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {
        "x": at.buffer(op.x),
        "weight": at.weight(op.weight),
        "residual": at.buffer(op.residual),
        "out": at.out(op.out),
        "out_q16": at.q16(op.out),
        "n": op.x.width,
        "eps": op.eps,
    }
    return [LaunchSpec("rms_norm", (shape.n_rows(op.out), 1, 1), arguments)]


def _linear(op: ops.Linear, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    n_rows = shape.n_rows(op.out)
    launches, column = [], 0
    for weights, bias in _runs(op, at):
        dtype, n_out = weights[0].dtype, sum(weight.shape[0] for weight in weights)
        arguments = {
            "packed": at.weight(weights[0]),
            **({"x_q16": at.q16(op.x)} if dtype.is_quantised else {"x": at.buffer(op.x)}),
            "bias": at.weight(bias),
            "residual": at.buffer(op.residual),
            "out": at.buffer(op.out),
            "n_out": n_out,
            "n_in": op.x.width,
            "width_out": op.out.width,
            "column": column,
            "n_rows": n_rows,
        }
        name = choose_kind(dtype, n_out=n_out, n_rows=n_rows, arch=at.arch, n_compute_units=at.n_compute_units)
        kind = kinds_of(dtype)[name]
        grid = (_blocks(n_out, GROUP * kind.n_groups), _blocks(n_rows, kind.n_rows), 1)
        launches.append(LaunchSpec(f"linear_{dtype.name}_{name}", grid, arguments))
        column += n_out
    return launches


def _runs(op: ops.Linear, at: Addresses) -> Iterator[tuple[tuple[Weight, ...], Weight | None]]:
    """Matrices that one launch can take for one, and the bias of the first: of one format, in whole row groups, one
    after the other in memory, as their biases are.
    """
    run: list[Weight] = []
    first_bias, last_bias = None, None
    for weight, bias in zip(op.weights, op.biases, strict=True):
        joins = bool(run) and run[-1].dtype is weight.dtype and at.follows(run[-1], weight)
        joins = joins and (bias is last_bias is None or at.follows(last_bias, bias))
        if run and not joins:
            yield tuple(run), first_bias
            run = []
        if not run:
            first_bias = bias
        run.append(weight)
        last_bias = bias
    yield tuple(run), first_bias


def _rope_angles(op: ops.RopeAngles, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {
        "frequencies": at.weights[op.inverse_frequencies.name],
        "positions": at.positions,
        "out": at.buffer(op.out),
        "n": op.out.width // 2,
        "scale": op.scale,
    }
    return [LaunchSpec("rope_angles", (shape.n_tokens, 1, 1), arguments)]


def _rope_store(op: ops.RopeStore, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {
        "qkv": at.buffer(op.qkv),
        "angles": at.buffer(op.angles),
        "q_norm": at.weight(op.q_norm),
        "k_norm": at.weight(op.k_norm),
        "out": at.buffer(op.out),
        "positions": at.positions,
        "slots": at.slots,
        "keys": at.states[op.keys.name],
        "values": at.states[op.values.name],
        "n_heads": op.n_heads,
        "n_kv_heads": op.keys.n_kv_heads,
        "dim": op.keys.head_dim,
        "n_rot": op.angles.width,
        "interleaved": int(op.interleaved),
        "max_seq": at.max_seq,
        "eps": op.eps,
    }
    n_heads = op.n_heads + 2 * op.keys.n_kv_heads
    return [LaunchSpec(f"rope_store_{at.kv_cache}", (n_heads, shape.n_tokens, 1), arguments)]


def _attention(op: ops.Attention, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    group = op.n_heads // op.keys.n_kv_heads
    # Rows that share a workgroup are neighbours in one sequence.
    neighbours = 1 if shape.is_decode and shape.n_tokens <= MAX_DECODING else shape.n_tokens
    queries = min((n for n in QUERIES_AT_ONCE if n >= group * neighbours), default=QUERIES_AT_ONCE[-1])
    heads_at_once = min(group, queries)
    rows_at_once = queries // heads_at_once
    head_blocks = op.keys.n_kv_heads * _blocks(group, heads_at_once)
    # A row's bits depend on none of this.
    is_whole = _blocks(shape.n_tokens, rows_at_once) * head_blocks >= ENOUGH_WORKGROUPS
    n_slices = 1 if is_whole else shape.n_chunks
    launches = []
    max_rows = max(at.partials_nbytes // partial_nbytes(op, n_slices), 1)
    for first_row in range(0, shape.n_tokens, max_rows):
        n_rows = min(max_rows, shape.n_tokens - first_row)
        shared = {
            "positions": at.positions,
            "partials": at.partials,
            "first_row": first_row,
            "n_heads": op.n_heads,
            "dim": op.keys.head_dim,
            "window": op.window or 0,
            "n_slices": n_slices,
        }
        arguments = {
            "q": at.buffer(op.q),
            "keys": at.states[op.keys.name],
            "values": at.states[op.values.name],
            "slots": at.slots,
            "n_rows": n_rows,
            "n_kv_heads": op.keys.n_kv_heads,
            "heads_at_once": heads_at_once,
            "rows_at_once": rows_at_once,
            "max_seq": at.max_seq,
            "scale": op.scale,
        }
        kernel = f"attention_{at.kv_cache}_x{queries}"
        launches.append(LaunchSpec(kernel, (n_slices, head_blocks, n_rows), shared | arguments))
        out_q16 = at.q16(op.out) if quantises_in_passing(op) else None
        join = shared | {"out": at.out(op.out), "out_q16": out_q16}
        launches.append(LaunchSpec("attention_join", (op.n_heads, n_rows, 1), join))
    return launches


def partial_nbytes(op: ops.Attention, n_slices: int) -> int:
    """Bytes of the partial results of one row."""
    return op.n_heads * n_slices * (STATS + op.keys.head_dim) * 4


def n_chunks_of(n_positions: int, at_most: int) -> int:
    """Chunks for the positions 0..n_positions - 1: a power of two, that few shapes of steps see a sequence grow."""
    return int(min(1 << (_blocks(n_positions, CHUNK) - 1).bit_length(), at_most))


def max_chunks_of(max_seq: int) -> int:
    """Chunks of the longest sequence."""
    return _blocks(max_seq, CHUNK)


def _gated(op: ops.Gated, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {"x": at.buffer(op.x), "out": at.out(op.out), "out_q16": at.q16(op.out), "n": op.out.width}
    return [_quads(f"gated_{op.activation}", op.out.width, shape.n_rows(op.out), arguments)]


def _gather_outputs(op: ops.GatherOutputs, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
    arguments = {
        "x": at.buffer(op.x),
        "output_rows": at.output_rows,
        "out": at.buffer(op.out),
        "n": op.out.width,
    }
    return [_elements("gather_outputs", op.out.width, shape.n_outputs, arguments)]


LOWER: Mapping[type[ops.Op], Callable[[Any, Addresses, StepShape], list[LaunchSpec]]] = {
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
