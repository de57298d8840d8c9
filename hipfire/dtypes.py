"""The one list of element types and quantised formats: block size, bytes, and what the bytes mean.

The formats are ggml's (layouts as in its `ggml-common.h`); the layout of each is in its `_unpack_*` function here,
which is the reference that the compiled kernels are tested against. All numbers are little-endian.
Knows no files and no devices.
"""

import math
from collections.abc import Callable

import attrs
import numpy as np
from numpy.typing import NDArray

_Bytes = NDArray[np.uint8]
_Floats = NDArray[np.float32]

_CHUNK_ELEMENTS = 1 << 16
"""Elements unpacked at a time: the temporaries stay in the cache, and small however large the tensor is."""


@attrs.frozen(kw_only=True)
class DType:
    """An element type or a block-quantised format.

    `block` consecutive elements of a row are stored together in `block_nbytes` bytes. `ggml_type` is the number
    that GGUF files use. `unpack` turns [n, block_nbytes] bytes into [n, block] values.
    """

    name: str
    ggml_type: int
    block: int
    block_nbytes: int
    unpack: Callable[[_Bytes], _Floats] = attrs.field(repr=False, eq=False)

    @property
    def is_quantised(self) -> bool:
        """Whether elements are stored as small integers that share scales."""
        return self.block > 1

    def nbytes(self, n_elements: int) -> int:
        """Bytes of `n_elements`, which must be a multiple of `block`."""
        n_blocks, rest = divmod(n_elements, self.block)
        if rest:
            raise ValueError(f"{n_elements} elements are no whole number of {self.name} blocks of {self.block}")
        return n_blocks * self.block_nbytes


def dequantize(data: NDArray[np.uint8], dtype: DType, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """The values that the 1-d bytes `data` of a tensor of this shape stand for, in memory of their own.

    Raises ValueError when `data` is not as long as the shape needs.
    """
    n = math.prod(shape)
    if data.shape != (dtype.nbytes(n),):
        raise ValueError(f"{data.shape} bytes for {n} elements of {dtype.name}, not {dtype.nbytes(n)}")
    blocks = data.reshape(-1, dtype.block_nbytes)
    values = np.empty((len(blocks), dtype.block), np.float32)
    n_chunk = _CHUNK_ELEMENTS // dtype.block
    # A damaged file may hold infinite scales and signalling NaNs; its values are then no numbers, which is no warning.
    with np.errstate(invalid="ignore"):
        for start in range(0, len(blocks), n_chunk):
            values[start : start + n_chunk] = dtype.unpack(blocks[start : start + n_chunk])
    return values.reshape(shape)


def _unpack_f32(blocks: _Bytes) -> _Floats:
    """IEEE 754 single precision."""
    return blocks.view("<f4")


def _unpack_f16(blocks: _Bytes) -> _Floats:
    """IEEE 754 half precision."""
    return _half(blocks)


def _unpack_bf16(blocks: _Bytes) -> _Floats:
    """The upper half of a single-precision number."""
    return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _unpack_q4_0(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d; 16 x nibbles. Element i is d * (q[i] - 8); byte i has elements i (low nibble) and i + 16."""
    d, q = _half(blocks[:, :2]), _nibbles(blocks[:, 2:])
    return d * (q.astype(np.float32) - 8)


def _unpack_q4_1(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d, f16 m; 16 x nibbles in the order of Q4_0. Element i is d * q[i] + m."""
    d, m, q = _half(blocks[:, :2]), _half(blocks[:, 2:4]), _nibbles(blocks[:, 4:])
    return d * q.astype(np.float32) + m


def _unpack_q5_0(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d; 32 x bit; 16 x nibbles in the order of Q4_0.

    Element i is d * (q[i] - 16); the fifth bit of q[i] is bit i of the bits, read as one 32-bit number.
    """
    d, fifth, q = _half(blocks[:, :2]), _bits(blocks[:, 2:6]), _nibbles(blocks[:, 6:])
    return d * ((q | fifth << 4).astype(np.float32) - 16)


def _unpack_q5_1(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d, f16 m; 32 x bit and 16 x nibbles as in Q5_0. Element i is d * q[i] + m."""
    d, m, fifth, q = _half(blocks[:, :2]), _half(blocks[:, 2:4]), _bits(blocks[:, 4:8]), _nibbles(blocks[:, 8:])
    return d * (q | fifth << 4).astype(np.float32) + m


def _unpack_q8_0(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d; 32 x int8. Element i is d * q[i]."""
    return _half(blocks[:, :2]) * blocks[:, 2:].view(np.int8).astype(np.float32)


def _unpack_q2_k(blocks: _Bytes) -> _Floats:
    """Bytes: 16 x (4-bit scale, 4-bit min, the scale in the low nibble); 64 x four 2-bit; f16 d, f16 d_min.

    Element i, of group g = i // 16, is d * scale[g] * q[i] - d_min * min[g]. The order of q is `_pairs_of_bits`'s.
    """
    packed, q = blocks[:, :16], _pairs_of_bits(blocks[:, 16:80])
    d, d_min = _half(blocks[:, 80:82]), _half(blocks[:, 82:84])
    return _scaled(q, d * (packed & 15), d_min * (packed >> 4))


def _unpack_q3_k(blocks: _Bytes) -> _Floats:
    """Bytes: 32 x eight third bits; 64 x four 2-bit; 12 bytes of 16 6-bit scales; f16 d.

    Element i, of group g = i // 16, is d * (scale[g] - 32) * (q[i] - 4). The low bits of q are in the order of
    `_pairs_of_bits`; its third bit is bit i // 32 of byte i % 32. The low 4 bits of scale g are a nibble of byte
    g % 8 (the low one where g < 8), its upper 2 are bits 2 * (g // 4).. of byte 8 + g % 4.
    """
    third, low = blocks[:, :32], _pairs_of_bits(blocks[:, 32:96])
    packed, d = blocks[:, 96:108], _half(blocks[:, 108:110])
    q = low | _shifted(third, range(8), mask=1) << 2
    scales = _nibbles(packed[:, :8]) | _shifted(packed[:, 8:], range(0, 8, 2), mask=3) << 4
    return _scaled(q.astype(np.float32) - 4, d * (scales.astype(np.float32) - 32))


def _unpack_q4_k(blocks: _Bytes) -> _Floats:
    """Bytes: f16 d, f16 d_min; 12 bytes of 8 scales and 8 mins (`_scales_and_mins`); 128 x two 4-bit.

    Element i, of group g = i // 32, is d * scale[g] * q[i] - d_min * min[g]. Each 32 bytes hold one group in their
    low and the next in their high nibbles.
    """
    scales, mins = _scales_and_mins(blocks)
    return _scaled(_nibbles(blocks[:, 16:].reshape(-1, 32)).reshape(-1, 256), scales, mins)


def _unpack_q5_k(blocks: _Bytes) -> _Floats:
    """Bytes: as Q4_K, but 32 x eight fifth bits come before the nibbles.

    The fifth bit of element i is bit i // 32 of byte i % 32.
    """
    scales, mins = _scales_and_mins(blocks)
    low = _nibbles(blocks[:, 48:].reshape(-1, 32)).reshape(-1, 256)
    fifth = _shifted(blocks[:, 16:48], range(8), mask=1)
    return _scaled(low | fifth << np.uint8(4), scales, mins)


def _unpack_q6_k(blocks: _Bytes) -> _Floats:
    """Bytes: 128 x two low 4-bit; 64 x four upper 2-bit; 16 x int8 scale; f16 d.

    Element i, of group g = i // 16, is d * scale[g] * (q[i] - 32). Each half of 128 elements has 64 bytes of low
    bits, first all low nibbles, then all high ones; its upper bits are in the order of `_pairs_of_bits`.
    """
    low = _nibbles(blocks[:, :128].reshape(-1, 64)).reshape(-1, 256)
    q = low | _pairs_of_bits(blocks[:, 128:192]) << 4
    scales, d = blocks[:, 192:208].view(np.int8), _half(blocks[:, 208:210])
    return _scaled(q.astype(np.float32) - 32, d * scales)


def _half(packed: _Bytes) -> _Floats:
    """[n, 2] bytes of one f16 each -> [n, 1]."""
    return np.ascontiguousarray(packed).view("<f2").astype(np.float32)


def _nibbles(packed: _Bytes) -> _Bytes:
    """[n, m] bytes -> [n, 2 m]: all low nibbles, then all high ones."""
    return _shifted(packed, range(0, 8, 4), mask=15)


def _pairs_of_bits(packed: _Bytes) -> _Bytes:
    """[n, 64] bytes of a K-quant -> [n, 256] values of 2 bits.

    Each 32 bytes hold 128 elements: first bits 0-1 of every byte, then bits 2-3, 4-5, 6-7.
    """
    return _shifted(packed.reshape(-1, 32), range(0, 8, 2), mask=3).reshape(-1, 256)


def _bits(packed: _Bytes) -> _Bytes:
    """[n, m] bytes -> [n, 8 m] bits, the lowest of each byte first."""
    return np.unpackbits(packed, axis=1, bitorder="little")


def _shifted(packed: _Bytes, shifts: range, *, mask: int) -> _Bytes:
    """[n, m] bytes -> [n, len(shifts) * m]: every byte shifted right by the first of `shifts` and masked, and so on."""
    fields = packed[:, np.newaxis, :] >> np.array(shifts, np.uint8)[:, np.newaxis] & np.uint8(mask)
    return fields.reshape(len(packed), -1)


def _scales_and_mins(blocks: _Bytes) -> tuple[_Floats, _Floats]:
    """Q4_K's and Q5_K's d * scale and d_min * min, [n, 8] each; the scales and mins have 6 bits.

    Of the 12 bytes, 0-3 hold scales 0-3 and 4-7 mins 0-3 in their low 6 bits. Scale and min 4 + i have their low
    4 bits in the low and the high nibble of byte 8 + i, their upper 2 bits in the top of bytes i and 4 + i.
    """
    first, rest = blocks[:, 4:12], blocks[:, 12:16]
    top = first >> 6 << 4
    scales = np.concatenate([first[:, :4] & 63, rest & 15 | top[:, :4]], axis=1)
    mins = np.concatenate([first[:, 4:] & 63, rest >> 4 | top[:, 4:]], axis=1)
    return _half(blocks[:, 0:2]) * scales, _half(blocks[:, 2:4]) * mins


def _scaled(q: _Bytes | _Floats, scales: _Floats, mins: _Floats | None = None) -> _Floats:
    """[n, 256] values * scales - mins, each of the latter [n, n_groups] for equal groups of the values."""
    groups = q.reshape(*scales.shape, -1) * scales[:, :, np.newaxis]
    if mins is not None:
        groups -= mins[:, :, np.newaxis]
    return groups.reshape(q.shape)


DTYPES = {
    row.name: row
    for row in (
        DType(name="f32", ggml_type=0, block=1, block_nbytes=4, unpack=_unpack_f32),
        DType(name="f16", ggml_type=1, block=1, block_nbytes=2, unpack=_unpack_f16),
        DType(name="bf16", ggml_type=30, block=1, block_nbytes=2, unpack=_unpack_bf16),
        DType(name="q4_0", ggml_type=2, block=32, block_nbytes=18, unpack=_unpack_q4_0),
        DType(name="q4_1", ggml_type=3, block=32, block_nbytes=20, unpack=_unpack_q4_1),
        DType(name="q5_0", ggml_type=6, block=32, block_nbytes=22, unpack=_unpack_q5_0),
        DType(name="q5_1", ggml_type=7, block=32, block_nbytes=24, unpack=_unpack_q5_1),
        DType(name="q8_0", ggml_type=8, block=32, block_nbytes=34, unpack=_unpack_q8_0),
        DType(name="q2_k", ggml_type=10, block=256, block_nbytes=84, unpack=_unpack_q2_k),
        DType(name="q3_k", ggml_type=11, block=256, block_nbytes=110, unpack=_unpack_q3_k),
        DType(name="q4_k", ggml_type=12, block=256, block_nbytes=144, unpack=_unpack_q4_k),
        DType(name="q5_k", ggml_type=13, block=256, block_nbytes=176, unpack=_unpack_q5_k),
        DType(name="q6_k", ggml_type=14, block=256, block_nbytes=210, unpack=_unpack_q6_k),
    )
}
BY_GGML_TYPE = {row.ggml_type: row for row in DTYPES.values()}
