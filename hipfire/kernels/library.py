"""The compiled CPU kernels by ctypes: every struct and function of `cpu/hipfire_cpu.h`, declared once.

Knows no Program: `devices.cpu` fills the structs.
"""

import ctypes
import enum
from ctypes import POINTER, Structure, c_bool, c_char_p, c_float, c_int32, c_int64, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from hipfire.errors import DeviceError

ABI_VERSION = 9


class OpKind(enum.IntEnum):
    """`enum op_kind`."""

    EMBED = 0
    RMS_NORM = 1
    LINEAR = 2
    ROPE_ANGLES = 3
    ROPE_STORE = 4
    ATTENTION = 5
    GATED = 6
    GATHER_OUTPUTS = 7
    QUANTISE = 8


ACTIVATIONS = {"silu": 0, "gelu_tanh": 1}
"""`enum activation`."""

KV_FORMATS = {"f32": 0, "f16": 1, "q16": 2, "q8": 3}
"""`enum kv_format`."""


class Matrix(Structure):
    """`struct matrix`."""

    _fields_ = (
        ("packed", c_void_p),
        ("bias", c_void_p),
        ("n_out", c_int32),
        ("n_in", c_int32),
        ("format", c_int32),
        ("column", c_int32),
    )


class CpuOp(Structure):
    """`struct op`."""

    _fields_ = (
        ("kind", c_int32),
        ("per_output", c_int32),
        ("out", c_void_p),
        ("out_q16", c_void_p),
        ("x", c_void_p),
        ("x_q16", c_void_p),
        ("residual", c_void_p),
        ("weight", c_void_p),
        ("angles", c_void_p),
        ("q_norm", c_void_p),
        ("k_norm", c_void_p),
        ("keys", c_void_p),
        ("values", c_void_p),
        ("matrices", c_void_p),
        ("n_matrices", c_int32),
        ("width_in", c_int32),
        ("width_out", c_int32),
        ("n_heads", c_int32),
        ("n_kv_heads", c_int32),
        ("head_dim", c_int32),
        ("n_rot", c_int32),
        ("interleaved", c_int32),
        ("window", c_int32),
        ("activation", c_int32),
        ("kv_format", c_int32),
        ("max_seq", c_int32),
        ("eps", c_float),
        ("scale", c_float),
    )


class CpuStep(Structure):
    """`struct step`."""

    _fields_ = (
        ("token_ids", c_void_p),
        ("positions", c_void_p),
        ("slots", c_void_p),
        ("output_rows", c_void_p),
        ("n_tokens", c_int32),
        ("n_outputs", c_int32),
    )


class Launch(Structure):
    """`struct launch`."""

    _fields_ = (
        ("function", c_void_p),
        ("arguments", c_void_p),
        ("arguments_nbytes", c_uint32),
        ("grid", c_uint32 * 3),
        ("n_threads", c_uint32),
    )


class Library:
    """One variant's library, loaded. The methods are the C functions; calls release the GIL."""

    def __init__(self, path: Path) -> None:
        """Raises DeviceError when the file cannot be loaded or is of another build than this code."""
        try:
            loaded = ctypes.CDLL(str(path))
        except OSError as error:
            raise DeviceError(f"the CPU kernels in {path.name} cannot be loaded: {error}") from error
        self.path = path

        def declare(name: str, result: Any, *arguments: Any) -> Any:
            function = getattr(loaded, name)
            function.restype = result
            function.argtypes = arguments
            return function

        if declare("hf_abi_version", c_int32)() != ABI_VERSION:
            raise DeviceError(f"{path.name} is of another build", hint="run python -m hipfire.kernels.build")
        self.machine_has = declare("hf_machine_has", c_bool, c_char_p)
        self.packed_nbytes = declare("hf_packed_nbytes", c_int64, c_int32, c_int64, c_int64)
        self.q16_row_nbytes = declare("hf_q16_row_nbytes", c_int64, c_int64)
        self.linear_scratch_nbytes = declare("hf_linear_scratch_nbytes", c_int64, c_int64)
        self.attention_scratch_nbytes = declare("hf_attention_scratch_nbytes", c_int64, c_int32)
        self.kv_nbytes = declare("hf_kv_nbytes", c_int64, c_int32, c_int32, c_int32, c_int32, c_int32)
        self.kv_copy = declare("hf_kv_copy", None, POINTER(CpuOp), c_int32, c_int32, c_int32)
        self.pool_open = declare("hf_pool_open", c_void_p, c_int32, c_int64)
        self.pool_close = declare("hf_pool_close", None, c_void_p)
        self.pack = declare("hf_pack", None, c_void_p, c_int32, c_void_p, c_void_p, c_int64, c_int64)
        self.run = declare("hf_run", c_bool, c_void_p, POINTER(CpuOp), c_int32, POINTER(CpuStep), c_void_p, c_void_p)
        self.launch = declare("hf_launch", c_int32, c_void_p, POINTER(Launch), c_int32, c_void_p)
        row = (c_void_p, c_int64)
        self.is_finite = declare("hf_is_finite", c_bool, *row)
        self.allow = declare("hf_allow", None, c_void_p, c_void_p, c_int64, c_void_p)
        self.best_scratch_nbytes = declare("hf_best_scratch_nbytes", c_int64, c_int64)
        self.best = declare("hf_best", None, *row, c_int64, c_void_p, c_void_p)
        self.weights = declare("hf_weights", None, *row, c_float, c_float, c_void_p)
        self.total = declare("hf_total", c_int64, *row, c_float, c_float)
        self.draw = declare("hf_draw", c_int64, *row, c_float, c_float, c_int64, c_int64)
        self.formats = _formats(declare("hf_format_name", c_char_p, c_int32))
        """Numbers of the formats that the library has, by dtype name."""


def _formats(format_name: Any) -> dict[str, int]:
    formats: dict[str, int] = {}
    while (name := format_name(len(formats))) is not None:
        formats[name.decode()] = len(formats)
    return formats
