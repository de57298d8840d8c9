"""What every kind of op of a model costs on the CPU device: time, GB/s and GMAC/s, by the C loop's own clock.

    python benchmarks/ops.py MODEL [--tokens 1 512] [--history 0] [--threads N] [--kv-cache q16] [--json FILE]

For each number of new tokens a table of the ops of that step, those of equal kind and shape added up, the costliest
first. `share` is of the step's time; an op's time ends when all threads are done with it. Bytes are those that must be
read at least once: weights as the file has them, and the keys and values that the rows see. Their rate beside the
memory's, in the table's title, says how far an op is from that limit. Each op counts with its least time over the
runs, since a busy machine only adds.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs
import numpy as np
from compare import read_bandwidth
from numpy.typing import NDArray

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.cpu import CpuDevice, CpuExecutable
from hipfire.formats.open import open_checkpoint
from hipfire.kernels.library import OpKind
from hipfire.models.registry import build_program
from hipfire.program import ops
from hipfire.program.operands import Symbol
from hipfire.program.program import Program

KV_ELEMENT_NBYTES = {"q16": 66 / 32, "f16": 2.0, "q8": 34 / 32, "f32": 4.0}
CHUNK = 512


@attrs.define(kw_only=True)
class Row:
    """All ops of one kind and shape in a step."""

    what: str
    n: int = 0
    seconds: float = 0.0
    nbytes: float = 0.0
    n_products: float = 0.0


@attrs.frozen(kw_only=True)
class Shape:
    """A step of rows that follow each other behind `history` positions."""

    n_tokens: int
    history: int
    kv_cache: str

    def rows(self, op: ops.Op) -> int:
        return self.n_tokens if op.out.shape[0] is Symbol.N_TOKENS else 1


def step_of(n: int, start: int) -> Step:
    return Step(
        token_ids=(np.arange(n, dtype=np.int32) * 7 % 1000 + 100).astype(np.int32),
        positions=np.arange(start, start + n, dtype=np.int32),
        slots=np.zeros(n, np.int32),
        output_rows=np.array([n - 1], np.int32),
    )


def describe(op: ops.Op) -> str:
    """Kind, formats and shape."""
    kind = type(op).__name__
    if isinstance(op, ops.Linear):
        formats = "+".join(sorted({weight.dtype.name for weight in op.weights}))
        return f"{kind} {formats} {op.x.width}->{op.out.width}"
    if isinstance(op, ops.Attention):
        window = f" window {op.window}" if op.window else ""
        return f"{kind} {op.n_heads}/{op.keys.n_kv_heads} heads of {op.keys.head_dim}{window}"
    return f"{kind} {op.out.width}"


def cost(op: ops.Op, shape: Shape) -> tuple[float, float]:
    """Bytes that an op must read at least, and products that it adds up; 0 for ops that are neither's."""
    if isinstance(op, ops.Linear):
        weights_nbytes = sum(weight.dtype.nbytes(weight.n_elements) for weight in op.weights)
        return weights_nbytes, shape.rows(op) * sum(weight.n_elements for weight in op.weights)
    if isinstance(op, ops.Attention):
        ends = range(shape.history + 1, shape.history + shape.n_tokens + 1)
        seen = [min(end, op.window or end) for end in ends]
        read = min(ends[-1], (op.window or ends[-1]) + shape.n_tokens - 1)
        nbytes = 2 * read * op.keys.n_kv_heads * op.keys.head_dim * KV_ELEMENT_NBYTES[shape.kv_cache]
        return nbytes, 2 * sum(seen) * op.n_heads * op.keys.head_dim
    return 0, 0


def labelled(program: Program, kinds: Sequence[OpKind], shape: Shape) -> Iterator[tuple[str, float, float]]:
    """What each op of the C loop is, with its cost: the Program's ops, and those that only quantise."""
    source = iter(program.ops)
    for kind in kinds:
        if kind == OpKind.QUANTISE:
            yield "Quantise", 0, 0
        else:
            op = next(source)
            yield describe(op), *cost(op, shape)


def measure(executable: CpuExecutable, program: Program, shape: Shape, n_runs: int) -> list[Row]:
    """The costliest first."""
    for start in range(0, shape.history, CHUNK):
        executable.run(step_of(min(CHUNK, shape.history - start), start), CancelFlag())
    step = step_of(shape.n_tokens, shape.history)
    executable.run(step, CancelFlag())
    runs: list[NDArray[np.int64]] = []
    for _ in range(n_runs):
        runs.append(np.zeros(len(executable.op_kinds), np.int64))
        executable.run(step, CancelFlag(), op_ns=runs[-1])
    rows: dict[str, Row] = {}
    for (what, nbytes, n_products), ns in zip(
        labelled(program, executable.op_kinds, shape), np.min(runs, axis=0), strict=True
    ):
        row = rows.setdefault(what, Row(what=what))
        row.n += 1
        row.seconds += int(ns) / 1e9
        row.nbytes += nbytes
        row.n_products += n_products
    return sorted(rows.values(), key=lambda row: -row.seconds)


def table(rows: Sequence[Row], title: str) -> str:
    total = sum(row.seconds for row in rows)
    lines = [title, "{:42} {:>4} {:>10} {:>6} {:>7} {:>7}".format("", "n", "ms", "share", "GB/s", "GMAC/s")]
    for row in rows:
        rates = [f"{amount / row.seconds / 1e9:7.1f}" if amount else " " * 7 for amount in (row.nbytes, row.n_products)]
        cells = f"{row.n:4} {1000 * row.seconds:10.3f} {row.seconds / total:6.1%}"
        lines.append(f"{row.what:42} {cells} {' '.join(rates)}".rstrip())
    return "\n".join([*lines, f"{'all':47} {1000 * total:10.3f}"])


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[1, 512], help="rows of each step that is measured")
    parser.add_argument("--history", type=int, default=0, help="positions before them")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--variant", help="of the kernels; the machine's best if left out")
    parser.add_argument("--kv-cache", choices=KV_ELEMENT_NBYTES, default="q16")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(argv)
    device = CpuDevice.open(options.threads, variant=options.variant)
    bandwidth = read_bandwidth(device.n_threads)
    longest = max(*options.tokens, min(CHUNK, options.history))
    limits = Limits(
        max_tokens=longest,
        max_outputs=1,
        n_slots=1,
        max_seq=options.history + max(options.tokens),
        kv_cache=options.kv_cache,
    )
    report = {}
    with open_checkpoint(options.model) as checkpoint:
        program = build_program(checkpoint).program
        tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
        executable = device.load(program, tensors, limits, on_progress=lambda _: None)
        for n in options.tokens:
            shape = Shape(n_tokens=n, history=options.history, kv_cache=options.kv_cache)
            rows = measure(executable, program, shape, options.runs)
            of = f"{n} tokens behind {options.history}, memory reads at {bandwidth / 1e9:.1f} GB/s"
            print(table(rows, f"{options.model.name} on {device.description}: {of}"), end="\n\n")
            report[n] = [attrs.asdict(row) for row in rows]
        executable.close()
    if options.json:
        options.json.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
