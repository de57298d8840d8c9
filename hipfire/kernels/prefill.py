"""A model of the linear kernels for many rows on one card: what part of its matrix peak do they allow?

The products that are wanted take two operations a byte of the activations' integers: 4 for each output, row and column.
Each resource gets the cycles that it alone would need, in units of those that the matrix cores need for the wanted
products at the published peak:

- `matrix`: what the matrix instructions take; more than 1 where some of their products are not wanted;
- `vector`: the vector ALUs, as in roofline.py. They scale every sum of 32 (or 16) columns by floats of its own, so an
  output and row takes at least a shift, a conversion, a product and a multiply-add for each of them;
- `lds`, `cache`: bytes between LDS and registers, and from the caches to registers.

`best` is where all overlap, `worst` where the matrix instructions keep the vector ALUs from working, as on RDNA 3,
where they run on them. `filled` is what part of the card has work: workgroups come in whole rounds.

What it leaves out: waiting (for memory, for barriers, for the results of matrix instructions), bank conflicts, misses,
clocks under load, launches. It has been compared with no card.
"""

import attrs

from hipfire.kernels.code_object import KernelInfo
from hipfire.kernels.gpu_limits import LIMITS, Card
from hipfire.kernels.instruction_counts import Counts
from hipfire.kernels.roofline import vector_turns

LDS_BYTES_PER_CYCLE = 128
"""Of a compute unit, in all families."""


@attrs.frozen(kw_only=True)
class Prefill:
    """Times of the resources in units of the wanted products'; see the module."""

    matrix: float
    vector: float
    lds: float
    cache: float
    filled: float

    @property
    def best(self) -> float:
        """The part of the peak, where every part of the card has work, if everything overlaps."""
        return 1 / max(self.matrix, self.vector, self.lds, self.cache)

    @property
    def worst(self) -> float:
        """The part of the peak if matrix and vector instructions do not overlap."""
        return 1 / max(self.matrix + self.vector, self.lds, self.cache)

    @property
    def bound(self) -> str:
        """What needs the most time."""
        times = {"matrix": self.matrix, "vector": self.vector, "lds": self.lds, "cache": self.cache}
        return max(times, key=lambda name: times[name])


def prefill(counts: Counts, info: KernelInfo, card: Card, *, n_workgroups: int) -> Prefill:
    """Of a kernel that was compiled and counted for the card's architecture, on so many workgroups."""
    wanted = 4 * counts.n_weights * counts.n_rows / card.matrix_ops_per_cycle
    n_matrix = counts.classes.get("matrix", 0)
    units = card.n_simds / LIMITS[card.arch].n_simds
    rounds = -(-n_workgroups // units)
    return Prefill(
        matrix=n_matrix * card.matrix_instruction_ops / card.matrix_ops_per_cycle / wanted,
        vector=vector_turns(counts) * card.valu_cycles / card.simds_per_unit / wanted,
        lds=counts.lds_nbytes * info.wave_size / LDS_BYTES_PER_CYCLE / wanted,
        cache=counts.lane_nbytes * info.wave_size / card.cache_bytes_per_cycle / wanted,
        filled=n_workgroups / units / rounds,
    )
