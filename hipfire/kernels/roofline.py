"""A model of one linear kernel on one card, decoding one token: does memory hold it up, or do its instructions?

Each resource gets the time that it alone would need for the whole matrix, in units of the time that the memory needs
to deliver the weights at the card's published bandwidth:

- `vector`: the vector ALUs, a turn an instruction (a dual-issue pair is one, a `slow` one is four);
- `issue`: every instruction but hints in a turn of its own, as if a SIMD started one at a time. That is too
  pessimistic: a SIMD starts vector, scalar and memory instructions of different waves side by side;
- `cache`: the path from the caches to the registers, which carries the activations too;
- `latency`: a wave asks for a round's weights, waits, works, and asks again; enough waves must be waiting (Little's
  law), and there are no more than the matrix has outputs for. With an assumed LATENCY_S.

The fraction of the bandwidth is the reciprocal of the largest of these: `best` without, `worst` with `issue`.

What it leaves out: caches' hits and misses, bank and channel conflicts, refresh and the other reasons why no memory
delivers its published bandwidth, clocks under load, the time of a launch and of the first and last waves, other
kernels. So it says what a kernel's code allows, not what a card will do, and it has been compared with no card.
"""

import attrs

from hipfire.kernels.code_object import KernelInfo
from hipfire.kernels.gpu_limits import LIMITS, Card, waves_per_simd
from hipfire.kernels.instruction_counts import VECTOR_CLASSES, Counts

LATENCY_S = 800e-9
"""From asking the memory until the data is there, under load: an assumption for all cards, on the long side."""

SLOW_TURNS = 4


@attrs.frozen(kw_only=True)
class Roofline:
    """Times of the resources in units of the memory's; see the module."""

    vector: float
    issue: float
    cache: float
    latency: float

    @property
    def best(self) -> float:
        """The fraction of the bandwidth if instructions of different kinds overlap."""
        return 1 / max(1.0, self.vector, self.cache, self.latency)

    @property
    def worst(self) -> float:
        """The fraction of the bandwidth if none overlap."""
        return min(self.best, 1 / max(1.0, self.issue))

    @property
    def bound(self) -> str:
        """What needs the most time, without `issue`."""
        times = {"memory": 1.0, "vector": self.vector, "cache": self.cache, "latency": self.latency}
        return max(times, key=lambda name: times[name])


def roofline(counts: Counts, info: KernelInfo, card: Card, *, n_workgroups: int) -> Roofline:
    """Of a kernel that was compiled and counted for the card's architecture, on a matrix of so many workgroups."""
    memory_s = counts.weights_nbytes / card.bytes_per_s
    turns_per_s = card.n_simds * card.clock_hz / card.valu_cycles
    vector = vector_turns(counts)
    others = sum(n for name, n in counts.classes.items() if name not in VECTOR_CLASSES and name != "hint")
    path_per_s = card.n_compute_units * card.clock_hz * card.cache_bytes_per_cycle
    waves_there_are = n_workgroups * -(-info.n_threads // info.wave_size)
    waves = min(card.n_simds * waves_per_simd(info, LIMITS[card.arch]), waves_there_are)
    round_s = counts.weights_nbytes / counts.rounds / (card.bytes_per_s / waves)
    # Between two requests a wave also runs a round's instructions.
    work_s = vector / counts.rounds * card.valu_cycles / card.clock_hz
    return Roofline(
        vector=vector / turns_per_s / memory_s,
        issue=(vector + others) / turns_per_s / memory_s,
        cache=counts.lane_nbytes * info.wave_size / path_per_s / memory_s,
        latency=(LATENCY_S + work_s) / round_s,
    )


def vector_turns(counts: Counts) -> int:
    """Turns of a SIMD's vector ALU that all waves take."""
    turns = sum(counts.classes.get(name, 0) for name in VECTOR_CLASSES)
    return turns + (SLOW_TURNS - 1) * counts.classes.get("slow", 0)
