"""The GPU kernels: the source each is in, the threads of its workgroups, its arguments. The build checks the compiled
objects against this table, devices fill in the arguments by it.

Knows no GPU and no Program.
"""

import ctypes
import functools
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import attrs

from hipfire.dtypes import DTYPES
from hipfire.kernels.linear_kinds import kinds_of

TARGETS = (
    "gfx906", "gfx908", "gfx90a", "gfx942", "gfx950",
    "gfx1010", "gfx1012", "gfx1030", "gfx1031", "gfx1032",
    "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152",
    "gfx1200", "gfx1201",
)  # fmt: skip
"""Architectures that the kernels are compiled for."""

SOURCES = ("linear", "matrix", "embed", "rows", "attention", "sampling", "step")
"""Each kernels/hip/NAME.hip becomes hsaco/ARCHITECTURE/NAME.hsaco."""

CHUNK = 128
"""Positions that attention takes at a time, a thread each (attention.hip)."""

QUERIES_AT_ONCE = (4, 8, 16)
"""How many queries, one head of one row each, a workgroup of an attention kernel may take."""

STATS = 4
"""Floats before the weighted values in a partial result of attention (attention.hip)."""

SLICE = 4096
"""Logits of a workgroup that looks for the highest of them (sampling.hip)."""

BEST_COUNTS = (0, 1, 32, 64)
"""How many of a row's highest logits may be looked for: few, since each count is a list of launches of its own."""

QUAD = 4
"""Columns of a thread of the kernels that may write rows as integers of 16 bits (activations.h)."""

Q16_TILE, Q16_TILE_NBYTES = 32, 80
"""Columns and bytes of `struct activations`."""

MAX_HEAD_DIM = 512
KV_TYPES = ("f16", "q8", "f32")
"""Element types of keys and values."""
_KV_BLOCK = 32
_TYPES = {"p": ctypes.c_void_p, "i": ctypes.c_int32, "f": ctypes.c_float}


@attrs.frozen
class Kernel:
    """`signature`: each argument's name, prefixed p: (pointer), i: (int32) or f: (float32)."""

    source: str
    n_threads: int
    signature: str

    @functools.cached_property
    def arguments(self) -> type[ctypes.Structure]:
        """The arguments as they lie in memory; the layout of AMD's kernel arguments is C's."""
        fields = [(name, _TYPES[kind]) for kind, _, name in (part.partition(":") for part in self.signature.split())]
        return type("Arguments", (ctypes.Structure,), {"_fields_": fields})


_LINEAR = "p:packed p:{x} p:bias p:residual p:out i:n_out i:n_in i:width_out i:column i:n_rows"
_EMBED = "p:packed p:token_ids p:out i:n_in f:scale"
_ROPE_STORE = (
    "p:qkv p:angles p:q_norm p:k_norm p:out p:positions p:slots p:keys p:values "
    "i:n_heads i:n_kv_heads i:dim i:n_rot i:interleaved i:max_seq f:eps"
)
_ATTENTION = (
    "p:q p:keys p:values p:positions p:slots p:partials "
    "i:first_row i:n_rows i:n_heads i:n_kv_heads i:heads_at_once i:rows_at_once "
    "i:dim i:max_seq i:window i:n_slices f:scale"
)


def _kernels() -> Iterator[tuple[str, Kernel]]:
    for name, dtype in DTYPES.items():
        signature = _LINEAR.format(x="x_q16" if dtype.is_quantised else "x")
        for kind, of in kinds_of(dtype).items():
            yield f"linear_{name}_{kind}", Kernel(of.source, of.n_threads, signature)
        yield f"embed_{name}", Kernel("embed", 128, _EMBED)
    for kv in KV_TYPES:
        yield f"rope_store_{kv}", Kernel("rows", 64, _ROPE_STORE)
        for queries in QUERIES_AT_ONCE:
            yield f"attention_{kv}_x{queries}", Kernel("attention", CHUNK, _ATTENTION)
    for activation in ("silu", "gelu_tanh"):
        yield f"gated_{activation}", Kernel("rows", 64, "p:x p:out p:out_q16 i:n")
    yield "fetch_step", Kernel("step", 256, "p:host p:step i:n_tokens i:n_outputs i:max_tokens")
    yield "rms_norm", Kernel("rows", 256, "p:x p:weight p:residual p:out p:out_q16 i:n f:eps")
    yield "quantise", Kernel("rows", 64, "p:x p:out_q16 i:n")
    yield "gather_outputs", Kernel("rows", 256, "p:x p:output_rows p:out i:n")
    yield "rope_angles", Kernel("rows", 64, "p:frequencies p:positions p:out i:n f:scale")
    yield "best_of_slices", Kernel("sampling", 256, "p:logits p:lists i:n i:n_best")
    yield "join_best", Kernel("sampling", 256, "p:lists p:out i:n_lists i:n_best")
    yield (
        "attention_join",
        Kernel(
            "attention",
            64,
            "p:partials p:positions p:out p:out_q16 i:first_row i:n_heads i:dim i:window i:n_slices",
        ),
    )


KERNELS: Mapping[str, Kernel] = MappingProxyType(dict(_kernels()))


def kv_row_nbytes(kv_type: str, head_dim: int) -> int:
    """Bytes of a key or a value of one position (kv.h)."""
    if kv_type != "q8":
        return head_dim * {"f16": 2, "f32": 4}[kv_type]
    n_blocks = -(-head_dim // _KV_BLOCK)
    return head_dim + -(-n_blocks // 2) * 4


def fill(kernel: Kernel, values: Mapping[str, Any]) -> ctypes.Structure:
    """The arguments with these values; None is a null pointer. KeyError unless every argument has one."""
    return kernel.arguments(*(values[name] for name, *_ in kernel.arguments._fields_))
