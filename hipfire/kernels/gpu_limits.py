"""What limits the waves of an architecture, and what some cards can do. Data with its sources; computes occupancy only.

Registers, waves and granularities are those that LLVM's AMDGPU backend reckons with (AMDGPUBaseInfo.cpp and the
features of GCNProcessors.td). The cards' figures are AMD's: product pages and data sheets.
"""

from collections.abc import Mapping
from types import MappingProxyType

import attrs

from hipfire.kernels.code_object import KernelInfo


@attrs.frozen(kw_only=True)
class Limits:
    """Of the part of the chip whose waves share LDS: a compute unit of GCN and CDNA, a work-group processor of RDNA.

    Each of its SIMDs has `n_vgprs` vector registers for all lanes of a wave, given out in multiples of `vgpr_granule`,
    and where `n_sgprs` is not 0 as many scalar ones in multiples of 16; elsewhere every wave has its own.
    """

    wave_size: int
    max_waves: int
    n_vgprs: int
    vgpr_granule: int
    n_sgprs: int = 0
    n_simds: int = 4
    max_workgroups: int = 32
    lds_nbytes: int = 128 << 10


_SGPR_GRANULE = 16
_GCN = Limits(
    wave_size=64, max_waves=10, n_vgprs=256, vgpr_granule=4, n_sgprs=800, max_workgroups=16, lds_nbytes=64 << 10
)
_CDNA2 = attrs.evolve(_GCN, max_waves=8, n_vgprs=512, vgpr_granule=8)
_RDNA1 = Limits(wave_size=32, max_waves=20, n_vgprs=1024, vgpr_granule=8)
_RDNA2 = Limits(wave_size=32, max_waves=16, n_vgprs=1024, vgpr_granule=16)
_RDNA3_LARGE = Limits(wave_size=32, max_waves=16, n_vgprs=1536, vgpr_granule=24)

LIMITS: Mapping[str, Limits] = MappingProxyType(
    {
        "gfx906": _GCN,
        "gfx908": _GCN,
        "gfx90a": _CDNA2,
        "gfx942": _CDNA2,
        "gfx950": attrs.evolve(_CDNA2, lds_nbytes=160 << 10),
        "gfx1010": _RDNA1,
        "gfx1012": _RDNA1,
        **dict.fromkeys(("gfx1030", "gfx1031", "gfx1032", "gfx1102", "gfx1103", "gfx1150", "gfx1152"), _RDNA2),
        **dict.fromkeys(("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201"), _RDNA3_LARGE),
    }
)


def waves_per_simd(info: KernelInfo, limits: Limits) -> int:
    """How many waves of a kernel a SIMD holds at a time, in whole workgroups where they fill the chip's part evenly."""
    waves_a_group = -(-info.n_threads // limits.wave_size)
    by_vgprs = limits.n_vgprs // _rounded(info.n_vgprs, limits.vgpr_granule)
    by_sgprs = limits.n_sgprs // _rounded(info.n_sgprs, _SGPR_GRANULE) if limits.n_sgprs else limits.max_waves
    groups = min(limits.max_workgroups, limits.lds_nbytes // max(info.lds_nbytes, 1))
    by_groups = max(groups * waves_a_group // limits.n_simds, 1)
    return min(limits.max_waves, by_vgprs, by_sgprs, by_groups)


def _rounded(n: int, granule: int) -> int:
    return -(-max(n, 1) // granule) * granule


@attrs.frozen(kw_only=True)
class Card:
    """`clock_hz`: the game clock where AMD gives one, else the peak. `bytes_per_s`: the memory's published bandwidth.

    `valu_cycles`: cycles that a SIMD is busy with a vector instruction of one wave. `cache_bytes_per_cycle`: what a
    compute unit's vector memory path brings to registers. `matrix_ops_per_cycle`: products and additions of bytes that
    a compute unit's matrix cores do (for the Radeons AMD's comparison of their generations on gpuopen.com, for the
    MI300X the data sheet's 2,614.9 TOPS). `matrix_instruction_ops`: those of an instruction that the kernels use.
    """

    name: str
    arch: str
    n_compute_units: int
    simds_per_unit: int
    clock_hz: float
    bytes_per_s: float
    valu_cycles: int
    matrix_ops_per_cycle: int
    matrix_instruction_ops: int = 8192
    cache_bytes_per_cycle: int = 64

    @property
    def n_simds(self) -> int:
        return self.n_compute_units * self.simds_per_unit


CARDS = (
    Card(
        name="Radeon RX 7900 XTX", arch="gfx1100", n_compute_units=96, simds_per_unit=2,
        clock_hz=2.3e9, bytes_per_s=960e9, valu_cycles=1, matrix_ops_per_cycle=512,
    ),
    Card(
        name="Radeon 8060S (Strix Halo)", arch="gfx1151", n_compute_units=40, simds_per_unit=2,
        clock_hz=2.9e9, bytes_per_s=256e9, valu_cycles=1, matrix_ops_per_cycle=512,
    ),
    Card(
        name="Radeon RX 9070 XT", arch="gfx1201", n_compute_units=64, simds_per_unit=2,
        clock_hz=2.4e9, bytes_per_s=640e9, valu_cycles=1, matrix_ops_per_cycle=2048,
    ),
    Card(
        name="Instinct MI300X", arch="gfx942", n_compute_units=304, simds_per_unit=4,
        clock_hz=2.1e9, bytes_per_s=5.3e12, valu_cycles=4,
        matrix_ops_per_cycle=4096, matrix_instruction_ops=16384,
    ),
)  # fmt: skip
"""The cards that the roofline is drawn for."""
