"""What the model of kernels/roofline.py says of attention in decoding, as rows and as a table.

The memory's time is that of the keys and values of one layer (attention_counts.py says which), read once.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table

from hipfire.kernels.attention_counts import HEAD_DIM, N_HEADS, N_KV_HEADS, N_POSITIONS, read_attention_counts
from hipfire.kernels.code_object import read_kernels
from hipfire.kernels.gpu_limits import CARDS
from hipfire.kernels.hip_table import CHUNK
from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.roofline import roofline

Row = dict[str, Any]

_HEADS = f"{N_HEADS} heads and {N_KV_HEADS} KV heads of {HEAD_DIM} dims"
CAPTION = f"Attention of one token over {N_POSITIONS} positions, {_HEADS}."
_TIMES = ("vector", "issue", "cache", "latency")


def attention_rows(archs: Sequence[str], kernel: str) -> Iterator[Row]:
    """A row a card and type of state; of the kernels whose names contain `kernel`. Raises StaleCounts."""
    n_workgroups = N_KV_HEADS * -(-N_POSITIONS // CHUNK)
    for card in CARDS:
        if card.arch not in archs:
            continue
        infos = read_kernels(code_objects(card.arch)["attention"])
        for name, counts in read_attention_counts(card.arch).items():
            if kernel not in name:
                continue
            found = roofline(counts, infos[name], card, n_workgroups=n_workgroups)
            yield {
                "card": card.name,
                "arch": card.arch,
                "kernel": name,
                "n_positions": N_POSITIONS,
                "bytes_per_element": counts.bytes_per_weight,
                "instructions_per_element": counts.n_instructions * infos[name].wave_size / counts.n_weights,
                **{time: getattr(found, time) for time in _TIMES},
                "bound": found.bound,
                "fraction_best": found.best,
                "fraction_worst": found.worst,
            }


def attention_table(rows: Sequence[Row]) -> Table:
    """The rows for a terminal."""
    table = Table("arch", "kernel", box=None)
    for column in ("bytes/element", "lane instr./element", *_TIMES, "of peak", "bound by"):
        table.add_column(column, justify="right")
    for row in rows:
        low, high = row["fraction_worst"], row["fraction_best"]
        table.add_row(
            row["arch"], row["kernel"], f"{row['bytes_per_element']:.3f}", f"{row['instructions_per_element']:.2f}",
            *(f"{row[time]:.0%}" for time in _TIMES),
            f"{low:.0%}" if round(low, 2) == round(high, 2) else f"{low:.0%}–{high:.0%}",
            row["bound"],
        )  # fmt: skip
    return table
