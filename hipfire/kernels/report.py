"""What the compiled GPU kernels are like: `python -m hipfire.kernels.report`, in a checkout.

Registers, memory, occupancy and code size of every kernel for every architecture; with --roofline what the linear
kernels and attention should reach on some cards, decoding (kernels/roofline.py says what that is worth), or with
--n-rows the linear ones for a prompt (kernels/prefill.py). Reads the committed objects and the committed instruction
counts, needs no GPU, and runs nothing.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from hipfire.dtypes import DTYPES, DType
from hipfire.kernels.attention_report import CAPTION, attention_rows, attention_table
from hipfire.kernels.code_object import KernelInfo, code_sizes, read_kernels
from hipfire.kernels.gpu_limits import CARDS, LIMITS, Card, waves_per_simd
from hipfire.kernels.hip_table import TARGETS
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.instruction_counts import VECTOR_CLASSES, Counts, StaleCounts, read_counts
from hipfire.kernels.linear_kinds import GROUP, QUANTISED_KINDS, choose_kind, kinds_of
from hipfire.kernels.prefill import prefill
from hipfire.kernels.roofline import Roofline, roofline

AIM = 0.85
"""Of the bandwidth: kernels that the model puts below it are marked."""

Row = dict[str, Any]


def resource_rows(archs: Sequence[str], kernel: str) -> Iterator[Row]:
    """A row a kernel and architecture; of the kernels whose names contain `kernel`."""
    for arch in archs:
        for code in code_objects(arch).values():
            sizes = code_sizes(code)
            for name, info in sorted(read_kernels(code).items()):
                if kernel in name:
                    yield {
                        "arch": arch,
                        "kernel": name,
                        "vgprs": info.n_vgprs,
                        "sgprs": info.n_sgprs,
                        "lds_bytes": info.lds_nbytes,
                        "spills": info.n_spills,
                        "scratch_bytes": info.scratch_nbytes,
                        "waves_per_simd": waves_per_simd(info, LIMITS[arch]),
                        "max_waves": LIMITS[arch].max_waves,
                        "code_bytes": sizes[name],
                    }


def roofline_rows(archs: Sequence[str], kernel: str, n_out: int) -> Iterator[Row]:
    """A row a card and format, for a matrix of `n_out` outputs and the kernel that it gets. Raises StaleCounts."""
    for card in CARDS:
        if card.arch not in archs:
            continue
        infos, counts = read_kernels(code_objects(card.arch)["linear"]), read_counts(card.arch)
        for dtype in DTYPES.values():
            kind = choose_kind(dtype, n_out=n_out, n_rows=1, arch=card.arch, n_compute_units=card.n_compute_units)
            name = f"linear_{dtype.name}_{kind}"
            if kernel in name:
                n_workgroups = -(-n_out // (GROUP * kinds_of(dtype)[kind].n_groups))
                found = roofline(counts[name], infos[name], card, n_workgroups=n_workgroups)
                yield _roofline_row(card, dtype, counts[name], infos[name], found, n_out)


def _roofline_row(card: Card, dtype: DType, counts: Counts, info: KernelInfo, found: Roofline, n_out: int) -> Row:
    per_weight = info.wave_size / counts.n_weights
    return {
        "card": card.name,
        "arch": card.arch,
        "kernel": info.name,
        "n_out": n_out,
        "file_bytes_per_weight": dtype.block_nbytes / dtype.block,
        "bytes_per_weight": counts.bytes_per_weight,
        "instructions_per_weight": counts.n_instructions * per_weight,
        "vector_per_weight": {
            name: counts.classes[name] * per_weight for name in VECTOR_CLASSES if counts.classes.get(name)
        },
        "vector": found.vector,
        "issue": found.issue,
        "cache": found.cache,
        "latency": found.latency,
        "bound": found.bound,
        "fraction_best": found.best,
        "fraction_worst": found.worst,
        "below_aim": found.worst < AIM,
    }


def prefill_rows(archs: Sequence[str], kernel: str, n_out: int, n_rows: int) -> Iterator[Row]:
    """A row a card and quantised format, of the kernel by matrix cores for a matrix and rows. Raises StaleCounts."""
    of = QUANTISED_KINDS["matrix"]
    n_workgroups = -(-n_out // (GROUP * of.n_groups)) * -(-n_rows // of.n_rows)
    for card in CARDS:
        if card.arch not in archs:
            continue
        infos, counts = read_kernels(code_objects(card.arch)["matrix"]), read_counts(card.arch)
        for name, info in infos.items():
            if kernel in name:
                found = prefill(counts[name], info, card, n_workgroups=n_workgroups)
                yield {
                    "card": card.name, "arch": card.arch, "kernel": name, "n_out": n_out, "n_rows": n_rows,
                    "matrix": found.matrix, "vector": found.vector, "lds": found.lds, "cache": found.cache,
                    "filled": found.filled, "bound": found.bound,
                    "fraction_best": found.best, "fraction_worst": found.worst,
                }  # fmt: skip


def _resource_table(rows: Sequence[Row]) -> Table:
    table = Table("arch", "kernel", box=None)
    for column in ("VGPRs", "SGPRs", "LDS", "spills", "waves/SIMD", "code"):
        table.add_column(column, justify="right")
    for row in rows:
        numbers = (row[name] for name in ("vgprs", "sgprs", "lds_bytes", "spills"))
        waves = f"{row['waves_per_simd']} of {row['max_waves']}"
        table.add_row(row["arch"], row["kernel"], *map(str, numbers), waves, str(row["code_bytes"]))
    return table


def _roofline_table(rows: Sequence[Row]) -> Table:
    table = Table("arch", "kernel", box=None)
    columns = ("bytes/weight", "lane instr./weight", "vector", "issue", "cache", "latency", "of peak", "bound by")
    for column in columns:
        table.add_column(column, justify="right")
    table.add_column("vector instructions a weight")
    for row in rows:
        mix = ", ".join(f"{name} {n:.2f}" for name, n in row["vector_per_weight"].items() if n >= 0.05)
        low, high = row["fraction_worst"], row["fraction_best"]
        table.add_row(
            row["arch"], row["kernel"], f"{row['bytes_per_weight']:.3f}", f"{row['instructions_per_weight']:.2f}",
            *(f"{row[name]:.0%}" for name in ("vector", "issue", "cache", "latency")),
            f"{low:.0%}" if round(low, 2) == round(high, 2) else f"{low:.0%}–{high:.0%}",
            row["bound"], mix,
            style="yellow" if row["below_aim"] else None,
        )  # fmt: skip
    return table


def _write_roofline(console: Console, rows: Sequence[Row]) -> None:
    console.print(_roofline_table(rows))
    console.print("\nTimes against the memory's: 100% is as long as the weights take at the published bandwidth.")
    console.print("A model, compared with no card: hipfire/kernels/roofline.py says what it leaves out.")
    console.print(f"A matrix of {rows[0]['n_out']} outputs. Below {AIM:.0%} if no instructions overlap:")
    for arch in dict.fromkeys(row["arch"] for row in rows):
        below = [
            f"{row['kernel']} {row['fraction_worst']:.0%} ({row['bound']})"
            for row in rows
            if row["below_aim"] and row["arch"] == arch
        ]
        console.print(f"  {arch}: {', '.join(below) or 'none'}", style="yellow" if below else "green")


def _write_prefill(console: Console, rows: Sequence[Row]) -> None:
    table = Table("arch", "kernel", box=None)
    for column in ("matrix", "vector", "LDS", "cache", "of peak", "bound by", "card filled"):
        table.add_column(column, justify="right")
    for row in rows:
        times = (f"{row[name]:.0%}" for name in ("matrix", "vector", "lds", "cache"))
        low, high = row["fraction_worst"], row["fraction_best"]
        table.add_row(row["arch"], row["kernel"], *times, f"{low:.0%}–{high:.0%}", row["bound"], f"{row['filled']:.0%}")
    console.print(table)
    console.print("\nTimes against the wanted products' at the published peak of the matrix cores, two for a weight.")
    console.print("A model, compared with no card: hipfire/kernels/prefill.py says what it leaves out.")


def main(argv: Sequence[str] | None = None) -> int:
    """What the compiled GPU kernels take, and with --roofline whether memory or instructions hold decoding up."""
    parser = argparse.ArgumentParser(prog="python -m hipfire.kernels.report", description=main.__doc__)
    parser.add_argument("--arch", action="append", choices=TARGETS, help="only this architecture; may be repeated")
    parser.add_argument("--kernel", default="", help="only kernels with this in their names")
    parser.add_argument("--roofline", action="store_true", help="the model of the linear kernels and of attention")
    parser.add_argument("--n-out", type=int, default=4096, help="outputs of the modelled matrix (default: 4096)")
    parser.add_argument("--n-rows", type=int, default=1, help="rows of the modelled step (default: 1, decoding)")
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args(argv)
    archs = options.arch or TARGETS
    try:
        if not options.roofline:
            found = resource_rows(archs, options.kernel)
        elif options.n_rows == 1:
            found = roofline_rows(archs, options.kernel, options.n_out)
        else:
            found = prefill_rows(archs, options.kernel, options.n_out, options.n_rows)
        rows = list(found)
        decodes = options.roofline and options.n_rows == 1
        attention = list(attention_rows(archs, options.kernel)) if decodes else []
    except StaleCounts as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        json.dump(rows + attention, sys.stdout, indent=1)
        return 0
    # Into a file or a pipe the table goes as wide as it is.
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 200)
    if decodes:
        if rows:
            _write_roofline(console, rows)
        if attention:
            console.print(f"\n{CAPTION} Times against that of reading the keys and values once:")
            console.print(attention_table(attention))
    elif options.roofline:
        _write_prefill(console, rows)
    else:
        console.print(_resource_table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
