"""Rotary position embedding: how fast each pair of a head turns, by the scaling that a file asks for.

Kinds: none, linear, llama3 (the converter leaves its divisors in `rope_freqs.weight`), yarn. Those that depend on
the length of the sequence (dynamic, longrope) are refused.
Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071), and what llama.cpp reads from a file, so that a file
made for it means the same here. Knows no architecture.
"""

import math

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.models.reader import Reader
from hipfire.program.operands import Buffer
from hipfire.program.program import Builder

DEFAULT_BASE = 10000.0
# The turns within the trained context over which YaRN leaves a pair alone, and under which it slows it fully.
_YARN_BETA_FAST = 32.0
_YARN_BETA_SLOW = 1.0


@attrs.frozen(kw_only=True, eq=False)
class Rotation:
    """`inverse_frequencies` float32 [n_rot / 2]: radians a position for each pair; `scale` multiplies cos and sin."""

    inverse_frequencies: NDArray[np.float32]
    scale: float = 1.0

    def emit(self, builder: Builder, name: str) -> Buffer:
        """The op that computes each row's angles."""
        return builder.rope_angles(name, self.inverse_frequencies, scale=self.scale)


def plain_rotation(n_rot: int, base: float) -> Rotation:
    """Without any scaling: pair i turns by base ** (-2 i / n_rot) a position."""
    return Rotation(inverse_frequencies=_plain(n_rot, base).astype(np.float32))


def read_n_rot(reader: Reader, head_dim: int) -> int:
    """How many elements of a head turn: `rope.dimension_count`, or all."""
    n_rot = reader.count("rope.dimension_count", head_dim)
    if n_rot % 2 or n_rot > head_dim:
        raise reader.corrupt(f"metadata rope.dimension_count is {n_rot}, which is odd or over a head's {head_dim}")
    return n_rot


def read_rotation(reader: Reader, n_rot: int) -> Rotation:
    """The rotation that the `rope.*` keys and `rope_freqs.weight` describe."""
    base = reader.positive("rope.freq_base", DEFAULT_BASE)
    if base <= 1:
        raise reader.corrupt(f"metadata rope.freq_base is {base}, not over 1")
    frequencies = _plain(n_rot, base)
    divisors = reader.optional_values("rope_freqs.weight", n_rot // 2)
    if divisors is not None:
        if not (np.isfinite(divisors) & (divisors > 0)).all():
            raise reader.corrupt("tensor rope_freqs.weight holds a value that is not over 0")
        frequencies = frequencies / divisors.astype(np.float64)

    # A factor of 0 means none. Files without a type mean linear.
    factor = reader.number("rope.scaling.factor", reader.number("rope.scale_linear", 0.0)) or 1.0
    scale = reader.positive("rope.scaling.attn_factor", 1.0)
    kind = reader.text("rope.scaling.type", "linear")
    with np.errstate(over="ignore", invalid="ignore"):
        if kind == "linear":
            frequencies = frequencies / factor
        elif kind == "yarn":
            frequencies = _yarn(reader, frequencies, base, factor)
            scale *= _yarn_scale(reader, factor)
        elif kind != "none":
            raise reader.unsupported(f"rope.scaling.type is {kind!r}; this build has none, linear and yarn")
    if not (frequencies < np.finfo(np.float32).max).all():
        raise reader.corrupt(f"metadata rope.scaling.factor {factor} makes pairs turn infinitely fast")
    return Rotation(inverse_frequencies=frequencies.astype(np.float32), scale=scale)


def _plain(n_rot: int, base: float) -> NDArray[np.float64]:
    exponents = np.arange(0, n_rot, 2, dtype=np.float64) / n_rot
    return np.asarray(base**-exponents, np.float64)


def _yarn(reader: Reader, frequencies: NDArray[np.float64], base: float, factor: float) -> NDArray[np.float64]:
    """Slow pairs are interpolated (divided by the factor), fast ones kept, those between blended."""
    n_rot = 2 * frequencies.size
    trained = reader.count("rope.scaling.original_context_length", reader.count("context_length"))

    def pair_with_turns(turns: float) -> float:
        """The index of the pair that turns this many times within the trained context."""
        return n_rot * math.log(trained / (turns * 2 * math.pi)) / (2 * math.log(base))

    low = math.floor(pair_with_turns(reader.positive("rope.scaling.yarn_beta_fast", _YARN_BETA_FAST)))
    high = math.ceil(pair_with_turns(reader.positive("rope.scaling.yarn_beta_slow", _YARN_BETA_SLOW)))
    low, high = max(low, 0), min(high, n_rot - 1)
    ramp = np.clip((np.arange(frequencies.size) - low) / max(high - low, 0.001), 0, 1)
    kept = (1 - ramp) * reader.number("rope.scaling.yarn_ext_factor", 1.0)
    return frequencies / factor * (1 - kept) + frequencies * kept


def _yarn_scale(reader: Reader, factor: float) -> float:
    """YaRN's temperature, as a factor of cos and sin: 0.1 ln(factor) + 1 and what the file changes about it.

    `yarn_log_multiplier` (the original's mscale_all_dim) divides by the same formula with its own weight.
    """

    def magnitude(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    multiplier = reader.number("rope.scaling.yarn_log_multiplier", 0.0)
    divisor = magnitude(multiplier) if multiplier else 1.0
    return magnitude(1.0) / divisor * reader.positive("rope.scaling.yarn_attn_factor", 1.0)
