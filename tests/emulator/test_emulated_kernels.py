"""The machine code of many small kernels, on every family, against NumPy. Sizes are multiples of nothing."""

from collections.abc import Callable
from ctypes import c_float, c_int
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from emulator.conftest import MATRIX_ARCHS, KernelNamed, lanes_of

SEED = 20240229
N = 1013
GRID = (5,)
BLOCK = (256,)
EXACT = {"rtol": 0, "atol": 0}
ROUNDED = {"rtol": 1e-6, "atol": 1e-6}


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


def floats(rng: np.random.Generator, *shape: int) -> NDArray[np.float32]:
    return rng.uniform(-2, 2, shape).astype(np.float32)


def as_bf16(values: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Rounded to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(values: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (values.astype(np.uint32) << 16).view(np.float32)


def test_add(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b, out = floats(rng, N), floats(rng, N), np.zeros(N, np.float32)
    kernel("elementwise.hip", "add")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    np.testing.assert_array_equal(out, a + b)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 12, 16])
def test_copies_of_every_width(kernel: KernelNamed, rng: np.random.Generator, width: int) -> None:
    a = rng.integers(0, 256, N * width).astype(np.uint8)
    out = np.zeros_like(a)
    kernel("elementwise.hip", f"copy_{width}")(a, out, c_int(N), grid=GRID, block=BLOCK)
    np.testing.assert_array_equal(out, a)


def test_signed_loads(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = rng.integers(-128, 128, N).astype(np.int8), rng.integers(-32768, 32768, N).astype(np.int16)
    out = np.zeros(N, np.int32)
    kernel("elementwise.hip", "widen")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    np.testing.assert_array_equal(out, a.astype(np.int32) * 3 + b)


def collatz_steps(x: int) -> int:
    steps = 0
    while x != 1:
        x = 3 * x + 1 if x & 1 else x >> 1
        steps += 1
    return steps


def test_divergent_loops(kernel: KernelNamed) -> None:
    start = np.arange(1, 300, dtype=np.uint32)
    out = np.zeros_like(start)
    kernel("elementwise.hip", "collatz")(start, out, c_int(len(start)), grid=(3,), block=(100,))
    assert out.tolist() == [collatz_steps(int(x)) for x in start]


def test_64_bit_integers(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = (rng.integers(0, 1 << 64, N, dtype=np.uint64) for _ in range(2))
    b[::3] = a[::3]
    out = np.zeros((N, 8), np.uint64)
    kernel("elementwise.hip", "long_math")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    shift = b & np.uint64(63)
    signed = a.view(np.int64), b.view(np.int64)
    columns = [a + b, a - b, a * b, a << shift, a >> shift, (signed[0] >> shift.view(np.int64)).view(np.uint64)]
    columns += [np.minimum(a, b), (signed[0] < signed[1]).astype(np.uint64)]
    np.testing.assert_array_equal(out, np.stack(columns, 1))


def test_32_bit_integers(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a = rng.integers(-(1 << 31), 1 << 31, N).astype(np.int32)
    b = rng.integers(1, 1 << rng.integers(1, 31), N).astype(np.int32) * rng.choice([-1, 1], N).astype(np.int32)
    out = np.zeros((N, 8), np.int32)
    kernel("elementwise.hip", "int_math")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    for row, x, y in zip(out.tolist(), a.tolist(), b.tolist(), strict=True):
        ux, uy = x & 0xFFFFFFFF, y & 0xFFFFFFFF
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert row[:3] == [quotient, x - quotient * y, signed32(ux // uy)]
        ones, leading = ux.bit_count(), 32 - (ux | 1).bit_length()
        trailing = ((ux | 1 << 31) & -(ux | 1 << 31)).bit_length() - 1
        assert row[3] == ones + leading * 100 + trailing * 10000
        pair = (ux << 32 | uy).to_bytes(8, "little")
        assert row[4] == int.from_bytes(bytes(pair[n] for n in (3, 5, 1, 6)), "little", signed=True)
        field = uy >> 3 & 511
        assert row[5] == (ux >> 5 & 127) + field - (field >> 8 << 9)
        assert row[6] == signed32((ux & uy) ^ (ux | ~uy & 0xFFFFFFFF))
        assert row[7] == signed32((ux << 32 | uy) >> 11 & 0xFFFFFFFF)


def signed32(x: int) -> int:
    return x - (x >> 31 << 32)


def test_f32_functions(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = rng.uniform(0.1, 8, N).astype(np.float32), rng.uniform(0.1, 8, N).astype(np.float32)
    out = np.zeros((N, 12), np.float32)
    kernel("elementwise.hip", "float_math")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    x, y = a.astype(np.float64), b.astype(np.float64)
    ten = np.float32(10)
    columns: list[Any] = [a / b, np.sqrt(a), np.exp(-x), np.log(x), np.sin(x), np.cos(x), x * y - x]
    columns += [np.rint(a * ten) + np.floor(b * ten), np.minimum(a, b) - np.maximum(a, b)]
    columns += [np.trunc(a * np.float32(100)) + np.trunc(b * np.float32(1000)), 1 / x + 1 / np.sqrt(y)]
    columns += [np.median(np.stack([a, b, np.ones_like(a)]), axis=0)]
    np.testing.assert_allclose(out, np.stack(columns, 1), rtol=2e-6, atol=2e-6)
    np.testing.assert_array_equal(out[:, 0], a / b)


def test_f64(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = rng.uniform(0.1, 1e3, N), rng.uniform(0.1, 1e3, N)
    out = np.zeros((N, 4))
    kernel("elementwise.hip", "double_math")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    columns = [a + b * 3, a / b, np.sqrt(a), a.astype(np.float32).astype(np.float64) + np.trunc(b * 100)]
    np.testing.assert_allclose(out, np.stack(columns, 1), rtol=1e-15)


def test_f16(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = floats(rng, N).astype(np.float16), floats(rng, N).astype(np.float16)
    b[b == 0] = 1
    out = np.zeros((N, 6), np.float16)
    kernel("elementwise.hip", "half_math")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    x, y = a.astype(np.float64), b.astype(np.float64)
    fused = (x * y + x).astype(np.float16)
    columns = [a + b, (x * y - x).astype(np.float16), (a.astype(np.float32) / b.astype(np.float32)).astype(np.float16)]
    columns += [fused, np.minimum(a, b), np.trunc(a)]
    np.testing.assert_allclose(out.astype(np.float32), np.stack(columns, 1).astype(np.float32), rtol=1e-3, atol=1e-6)
    np.testing.assert_array_equal(out[:, 3], fused)


def test_packed_f16(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = floats(rng, N, 2).astype(np.float16), floats(rng, N, 2).astype(np.float16)
    out = np.zeros((N, 4, 2), np.float16)
    kernel("elementwise.hip", "packed_half")(a, b, out, c_int(N), grid=GRID, block=BLOCK)
    swapped = b[:, ::-1]
    fused = (a.astype(np.float64) * b.astype(np.float64) - swapped.astype(np.float64)).astype(np.float16)
    np.testing.assert_array_equal(out, np.stack([a + b, a * swapped, fused, np.maximum(a, b)], 1))


def test_bf16(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, b = floats(rng, N), as_bf16(floats(rng, N))
    rounded, product = np.zeros(N, np.uint16), np.zeros(N, np.float32)
    kernel("elementwise.hip", "bf16")(a, b, rounded, product, c_int(N), grid=GRID, block=BLOCK)
    np.testing.assert_array_equal(rounded, as_bf16(a))
    np.testing.assert_array_equal(product, a * from_bf16(b))


def test_dequantisation(kernel: KernelNamed, rng: np.random.Generator) -> None:
    q, scale = rng.integers(0, 16, N).astype(np.uint8), floats(rng, N // 32 + 1).astype(np.float16)
    out = np.zeros(N, np.float32)
    kernel("elementwise.hip", "dequantise")(q, scale, out, c_int(N), grid=GRID, block=BLOCK)
    np.testing.assert_array_equal(out, scale.astype(np.float32)[np.arange(N) // 32] * (q.astype(np.float32) - 8))


@pytest.mark.parametrize("name", ["dpp_sums", "swizzle_sums"])
def test_sums_over_a_wave(kernel: KernelNamed, arch: str, rng: np.random.Generator, name: str) -> None:
    values, out = floats(rng, 230), np.zeros(256, np.float32)
    kernel("lanes.hip", name)(values, out, c_int(230), grid=(1,), block=(256,))
    check_wave_sums(values, out, lanes_of(arch))


def check_wave_sums(values: NDArray[np.float32], out: NDArray[np.float32], lanes: int) -> None:
    sums = np.pad(values, (0, 26)).astype(np.float64).reshape(-1, lanes).sum(1)
    np.testing.assert_allclose(out.reshape(-1, lanes), np.repeat(sums[:, None], lanes, 1), **ROUNDED)


def test_shuffles(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    n, lanes = 128, lanes_of(arch)
    values, out = floats(rng, n), np.full((7, n), np.nan, np.float32)
    kernel("lanes.hip", "shuffles")(values, out, c_int(n), grid=(1,), block=(n,))
    rows = values.reshape(-1, 16)
    np.testing.assert_array_equal(out[0].reshape(-1, 16), np.pad(rows, ((0, 0), (1, 0)))[:, :16])
    np.testing.assert_array_equal(out[1].reshape(-1, 16), np.pad(rows, ((0, 0), (0, 3)))[:, 3:])
    np.testing.assert_array_equal(out[2].reshape(-1, 16), np.roll(rows, 5, axis=1))
    waves = values.reshape(-1, lanes)
    np.testing.assert_array_equal(out[3].reshape(-1, lanes), waves[:, (np.arange(lanes) * 7 + 3) % lanes])
    np.testing.assert_array_equal(out[4].reshape(-1, lanes), np.repeat(waves[:, 5:6], lanes, 1))
    np.testing.assert_array_equal(out[5].reshape(-1, lanes), np.repeat(waves[:, :1], lanes, 1))
    masked = np.where(np.arange(len(rows))[:, None] % 2 == 1, out[0].reshape(-1, 16), 0)
    np.testing.assert_array_equal(out[6].reshape(-1, 16), masked + 100)


def test_ballot_and_ranks(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    values = rng.integers(0, 100, 230).astype(np.int32)
    rank, count = np.zeros(230, np.int32), np.zeros(230, np.int32)
    kernel("lanes.hip", "odd_ranks")(values, rank, count, c_int(230), grid=(1,), block=(256,))
    lanes = lanes_of(arch)
    for first in range(0, 230, lanes):
        odd = values[first : first + lanes] & 1
        np.testing.assert_array_equal(count[first : first + lanes], odd.sum())
        np.testing.assert_array_equal(rank[first : first + lanes], np.where(odd == 1, np.cumsum(odd) - 1, -1))


def test_wave64_on_rdna(gpu: Any, code_object: Any, rng: np.random.Generator) -> None:
    values, out = floats(rng, 230), np.zeros(256, np.float32)
    code = code_object("lanes.hip", "gfx1100", "-DWAVE64", "-target-feature", "+wavefrontsize64")
    gpu.kernel("gfx1100", code, "dpp_sums")(values, out, c_int(230), grid=(1,), block=(256,))
    check_wave_sums(values, out, 64)


def check_rmsnorm(kernel: KernelNamed, rng: np.random.Generator, n: int, threads: int) -> None:
    x, weight, out = floats(rng, 5, n), floats(rng, n), np.zeros((5, n), np.float32)
    kernel("rows.hip", "rmsnorm")(x, weight, out, c_int(n), c_float(1e-5), grid=(5,), block=(threads,))
    wide = x.astype(np.float64)
    expected = wide / np.sqrt((wide**2).mean(1, keepdims=True) + 1e-5) * weight
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=1e-6)


def check_softmax(kernel: KernelNamed, rng: np.random.Generator, n: int, threads: int) -> None:
    x, out = 5 * floats(rng, 3, n), np.zeros((3, n), np.float32)
    kernel("rows.hip", "softmax")(x, out, c_int(n), grid=(3,), block=(threads,))
    powers = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=2e-6, atol=1e-8)


@pytest.mark.parametrize("check", [check_rmsnorm, check_softmax])
@pytest.mark.parametrize(("n", "threads"), [(1, 64), (77, 64), (1023, 256)])
def test_rows(kernel: KernelNamed, rng: np.random.Generator, check: Callable[..., None], n: int, threads: int) -> None:
    check(kernel, rng, n, threads)


def test_transpose_in_dynamic_lds(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, out = floats(rng, 37, 53), np.zeros((53, 37), np.float32)
    launch = {"grid": (4, 3), "block": (16, 16), "lds_bytes": 16 * 17 * 4}
    kernel("rows.hip", "transpose")(a, out, c_int(37), c_int(53), **launch)
    np.testing.assert_array_equal(out, a.T)


def test_gemv_q4(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    rows, blocks = 13, 70
    q = rng.integers(0, 16, (rows, blocks, 32)).astype(np.uint8)
    packed = q[..., :16] | q[..., 16:] << 4
    scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype(np.float16)
    x, x_scales = (
        rng.integers(-127, 128, (blocks, 32)).astype(np.int8),
        rng.uniform(0.001, 0.01, blocks).astype(np.float32),
    )
    out = np.zeros(rows, np.float32)
    grid = ((rows * lanes_of(arch) + 127) // 128,)
    arguments = (packed, scales, x, x_scales, out, c_int(blocks), c_int(rows))
    kernel("quantised.hip", "gemv_q4")(*arguments, grid=grid, block=(128,))
    weights = (q.astype(np.float64) - 8) * scales.astype(np.float64)[..., None]
    expected = (weights * (x * x_scales[:, None].astype(np.float64))).sum((1, 2))
    np.testing.assert_allclose(out, expected, rtol=2e-6, atol=2e-6)


def test_gemv_f16(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    rows, n = 7, 246
    weight, x = floats(rng, rows, n).astype(np.float16), floats(rng, n).astype(np.float16)
    out = np.zeros(rows, np.float32)
    grid = ((rows * lanes_of(arch) + 127) // 128,)
    kernel("quantised.hip", "gemv_f16")(weight, x, out, c_int(n // 2), c_int(rows), grid=grid, block=(128,))
    np.testing.assert_allclose(out, weight.astype(np.float64) @ x.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", MATRIX_ARCHS)
@pytest.mark.parametrize("name", ["matmul_f16", "matmul_bf16"])
def test_float_matrices(kernel: KernelNamed, arch: str, rng: np.random.Generator, name: str) -> None:
    a, b, out = floats(rng, 16, 48), floats(rng, 16, 48), np.zeros((16, 16), np.float32)
    given = [as_bf16(m) if "bf16" in name else m.astype(np.float16) for m in (a, b)]
    kernel("matrix.hip", name)(*given, out, c_int(48), grid=(1,), block=(lanes_of(arch),))
    exact = [from_bf16(m) if "bf16" in name else m.astype(np.float32) for m in given]
    np.testing.assert_allclose(out, exact[0].astype(np.float64) @ exact[1].T.astype(np.float64), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("arch", MATRIX_ARCHS)
def test_int8_matrices(kernel: KernelNamed, arch: str, rng: np.random.Generator) -> None:
    a, b = (rng.integers(-128, 128, (16, 64)).astype(np.int8) for _ in range(2))
    out = np.zeros((16, 16), np.int32)
    kernel("matrix.hip", "matmul_i8")(a, b, out, c_int(64), grid=(1,), block=(lanes_of(arch),))
    np.testing.assert_array_equal(out, a.astype(np.int32) @ b.astype(np.int32).T)


def test_wide_mfma(gpu: Any, code_object: Any, rng: np.random.Generator) -> None:
    a, b = floats(rng, 32, 24).astype(np.float16), floats(rng, 32, 24).astype(np.float16)
    out = np.zeros((32, 32), np.float32)
    matmul = gpu.kernel("gfx942", code_object("matrix.hip", "gfx942"), "matmul_f16_32")
    matmul(a, b, out, c_int(24), grid=(1,), block=(64,))
    np.testing.assert_allclose(out, a.astype(np.float64) @ b.T.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_histogram_by_atomics_in_lds(kernel: KernelNamed, rng: np.random.Generator) -> None:
    values, counts = rng.integers(0, 256, 5001).astype(np.uint8), np.zeros(256, np.uint32)
    kernel("memory.hip", "histogram")(values, counts, c_int(5001), grid=(3,), block=(128,))
    np.testing.assert_array_equal(counts, np.bincount(values, minlength=256))


def test_global_atomics(kernel: KernelNamed, rng: np.random.Generator) -> None:
    n = 150
    values = rng.integers(-1000, 1000, n).astype(np.int32)
    out, total, wide = np.zeros(8 + n, np.int32), np.zeros(1, np.float32), np.zeros(1, np.uint64)
    kernel("memory.hip", "atomics")(values, out, total, wide, c_int(n), grid=(2,), block=(100,))
    assert out[:4].tolist() == [values.max(), values.min(), np.bitwise_xor.reduce(values), n]
    assert sorted(out[8:].tolist()) == list(range(n))
    assert 1 <= out[4] <= n
    assert total[0] == values.sum()
    assert wide[0] == (values.view(np.uint32).astype(np.uint64) << np.uint64(20)).sum()


def test_buffers_give_zero_past_their_end(kernel: KernelNamed, rng: np.random.Generator) -> None:
    a, out = floats(rng, 70), np.full(100, np.nan, np.float32)
    kernel("memory.hip", "buffer_copy")(a, out, c_int(100), c_int(70), grid=(1,), block=(128,))
    np.testing.assert_array_equal(out, np.pad(a, (0, 30)))


def test_flat_pointers(kernel: KernelNamed, rng: np.random.Generator) -> None:
    values, out = rng.integers(0, 1000, 128).astype(np.int32), np.zeros(100, np.int32)
    kernel("memory.hip", "flat")(values, out, c_int(100), grid=(1,), block=(128,))
    np.testing.assert_array_equal(out, np.where(np.arange(100) % 2, values[:100] * 2, values[:100]))


def test_scratch(kernel: KernelNamed, rng: np.random.Generator) -> None:
    values, out = rng.integers(0, 1000, 99).astype(np.int32), np.zeros(99, np.uint32)
    kernel("memory.hip", "scratch")(values, out, c_int(99), grid=(1,), block=(128,))
    for x, result in zip(values.tolist(), out.tolist(), strict=True):
        slots = [x * k for k in range(16)]
        for k in range(16):
            slots[(x + k) & 15] += slots[(x * 3 + k) & 15]
        total = 0
        for slot in slots:
            total = total * 31 + slot
        assert result == total & 0xFFFFFFFF


def test_constants_in_the_code_object(kernel: KernelNamed, rng: np.random.Generator) -> None:
    values, out = rng.integers(0, 100, 77).astype(np.int32), np.zeros(77, np.int32)
    kernel("memory.hip", "lookup")(values, out, c_int(77), grid=(1,), block=(128,))
    np.testing.assert_array_equal(out, np.array([3, 1, 4, 1, 5, 9, 2, 6])[values & 7])
