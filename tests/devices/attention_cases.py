"""Attention of the GPU by itself: states laid out as kernels/hip/kv.h says, the kernels, and what should come out."""

from collections.abc import Iterator

import attrs
import numpy as np
from devices.kernel_calls import KernelCalls
from numpy.typing import NDArray

from hipfire.kernels.hip_table import CHUNK, QUERIES_AT_ONCE, STATS, kv_row_nbytes

TILE, BLOCK = 32, 32

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@attrs.frozen(kw_only=True)
class Case:
    """A step: `runs` of rows, each a slot, the first row's position and how many follow each other."""

    kv: str
    n_heads: int
    n_kv_heads: int
    dim: int
    window: int = 0
    runs: tuple[tuple[int, int, int], ...]

    @property
    def slots(self) -> NDArray[np.int32]:
        return np.concatenate([np.full(n, slot, np.int32) for slot, _, n in self.runs])

    @property
    def positions(self) -> NDArray[np.int32]:
        return np.concatenate([np.arange(start, start + n, dtype=np.int32) for _, start, n in self.runs])

    @property
    def max_seq(self) -> int:
        return -(-(int(self.positions.max()) + 1) // TILE) * TILE


MIXED = ((0, 124, 7), (2, 131, 1), (1, 270, 1), (3, 0, 2))
"""Over the border of two chunks, another sequence that seems to go on there, a third chunk, and a beginning."""
CASES = (
    Case(kv="f32", n_heads=8, n_kv_heads=1, dim=64, runs=MIXED),
    Case(kv="f16", n_heads=3, n_kv_heads=3, dim=24, window=9, runs=MIXED),
    Case(kv="q8", n_heads=6, n_kv_heads=2, dim=80, window=70, runs=MIXED),
    Case(kv="f16", n_heads=8, n_kv_heads=2, dim=128, runs=((1, 250, 9), (0, 60, 1))),
    Case(kv="q8", n_heads=4, n_kv_heads=1, dim=256, runs=((0, 130, 3),)),
    Case(kv="f32", n_heads=18, n_kv_heads=1, dim=8, window=130, runs=((0, 255, 4), (1, 129, 1))),
    Case(kv="f16", n_heads=2, n_kv_heads=1, dim=512, runs=((0, 10, 2),)),
)


def quantised(x: Floats) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """q8's integers [..., dim] and scales [..., blocks]."""
    dim = x.shape[-1]
    padded = np.zeros((*x.shape[:-1], -(-dim // BLOCK), BLOCK), np.float32)
    padded.reshape(*x.shape[:-1], -1)[..., :dim] = x
    scales = (np.abs(padded).max(axis=-1) / np.float32(127)).astype(np.float16)
    with np.errstate(divide="ignore"):
        inverse = np.where(scales > 0, np.float32(1) / scales.astype(np.float32), np.float32(0))
    q = np.rint(padded * inverse[..., None]).clip(-127, 127).astype(np.int8)
    return q.reshape(*x.shape[:-1], -1)[..., :dim], scales


def kept(kv: str, x: Floats) -> Floats:
    """What is left of x in a state."""
    if kv != "q8":
        return x.astype({"f16": np.float16, "f32": np.float32}[kv]).astype(np.float32)
    q, scales = quantised(x)
    return q * np.repeat(scales.astype(np.float32), BLOCK, axis=-1)[..., : x.shape[-1]]


def _elements(kv: str, x: Floats) -> NDArray[np.generic]:
    return quantised(x)[0] if kv == "q8" else x.astype({"f16": np.float16, "f32": np.float32}[kv])


def packed_keys(kv: str, x: Floats) -> Bytes:
    """Of keys [slot, head, position, dim]; bytes that nothing is in are 255."""
    slots, heads, n, dim = x.shape
    tiles = np.full((slots, heads, n // TILE, TILE * kv_row_nbytes(kv, dim)), 255, np.uint8)
    elements = _elements(kv, x).reshape(slots, heads, n // TILE, TILE, dim // 8, 8).swapaxes(3, 4)
    raw = np.ascontiguousarray(elements).view(np.uint8).reshape(*tiles.shape[:3], -1)
    tiles[..., : raw.shape[-1]] = raw
    if kv == "q8":
        scales = quantised(x)[1].reshape(slots, heads, n // TILE, TILE, -1).swapaxes(3, 4)
        raw_scales = np.ascontiguousarray(scales).view(np.uint8).reshape(*tiles.shape[:3], -1)
        tiles[..., raw.shape[-1] : raw.shape[-1] + raw_scales.shape[-1]] = raw_scales
    return tiles


def packed_values(kv: str, x: Floats) -> Bytes:
    """Of values [slot, head, position, dim]; bytes that nothing is in are 255."""
    rows = np.full((*x.shape[:3], kv_row_nbytes(kv, x.shape[3])), 255, np.uint8)
    raw = np.ascontiguousarray(_elements(kv, x)).view(np.uint8)
    rows[..., : raw.shape[-1]] = raw
    if kv == "q8":
        scales = np.ascontiguousarray(quantised(x)[1]).view(np.uint8)
        rows[..., raw.shape[-1] : raw.shape[-1] + scales.shape[-1]] = scales
    return rows


@attrs.frozen(kw_only=True, eq=False)
class Inputs:
    """q [rows, heads, dim]; keys and values [slot, head, position, dim], NaN where no row looks."""

    q: Floats
    keys: Floats
    values: Floats


def random_inputs(case: Case) -> Inputs:
    rng = np.random.default_rng(case.dim)
    shape = (max(slot for slot, *_ in case.runs) + 1, case.n_kv_heads, case.max_seq, case.dim)
    keys, values = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    unseen = np.ones((shape[0], case.max_seq), bool)
    for slot, position in zip(case.slots, case.positions, strict=True):
        unseen[slot, _begin(case, position) : position + 1] = False
    # What an earlier sequence may have left there. Integers have no NaN, their scales do.
    for state in (keys, values):
        state.swapaxes(1, 2)[unseen] = 0 if case.kv == "q8" else np.nan
    q = rng.standard_normal((len(case.slots), case.n_heads, case.dim)).astype(np.float32)
    return Inputs(q=q, keys=keys, values=values)


def _begin(case: Case, position: int) -> int:
    return max(0, position + 1 - case.window) if case.window else 0


def expected(case: Case, inputs: Inputs) -> Floats:
    """In float64, of what is left of keys and values in the state."""
    keys, values = (kept(case.kv, state).astype(np.float64) for state in (inputs.keys, inputs.values))
    out = np.empty(inputs.q.shape)
    group = case.n_heads // case.n_kv_heads
    for row, (slot, position) in enumerate(zip(case.slots, case.positions, strict=True)):
        seen = slice(_begin(case, position), position + 1)
        for head in range(case.n_heads):
            scores = keys[slot, head // group, seen] @ inputs.q[row, head] * case.dim**-0.5
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ values[slot, head // group, seen] / weights.sum()
    return out.astype(np.float32)


def ways(case: Case) -> Iterator[tuple[int, int, int, int]]:
    """Numbers of queries at once, of heads and of rows among them, and of slices."""
    group = case.n_heads // case.n_kv_heads
    n_chunks = int(case.positions.max()) // CHUNK + 1
    heads = {queries: min(group, queries) for queries in QUERIES_AT_ONCE}
    few, some, many = QUERIES_AT_ONCE
    yield few, heads[few], 1, n_chunks
    yield some, heads[some], some // heads[some], 1
    yield many, heads[many], many // heads[many], 1
    yield many, heads[many], many // heads[many], n_chunks
    yield many, 1, 5, n_chunks


def attend(call: KernelCalls, case: Case, inputs: Inputs, way: tuple[int, int, int, int]) -> Floats:
    """What the kernels make of it."""
    queries, heads, rows, n_slices = way
    n_rows, group = len(case.slots), case.n_heads // case.n_kv_heads
    out = np.full_like(inputs.q, np.nan)
    partials = np.full((n_rows, case.n_heads, n_slices, STATS + case.dim), np.nan, np.float32)
    shared = {
        "positions": case.positions, "first_row": 0, "n_heads": case.n_heads, "dim": case.dim, "window": case.window,
        "n_slices": n_slices, "partials": partials,
    }  # fmt: skip
    call(
        f"attention_{case.kv}_x{queries}", (n_slices, case.n_kv_heads * -(-group // heads), n_rows),
        q=inputs.q, keys=packed_keys(case.kv, inputs.keys), values=packed_values(case.kv, inputs.values),
        slots=case.slots, n_rows=n_rows, n_kv_heads=case.n_kv_heads, heads_at_once=heads, rows_at_once=rows,
        max_seq=case.max_seq, scale=case.dim**-0.5, **shared,
    )  # fmt: skip
    call("attention_join", (case.n_heads, n_rows), out=out, out_q16=None, **shared)
    return out


def assert_attends(call: KernelCalls, case: Case) -> None:
    """As exact as float32 is, and the same bits in every way."""
    inputs = random_inputs(case)
    wanted = expected(case, inputs)
    first: Floats | None = None
    for way in ways(case):
        found = attend(call, case, inputs, way)
        if first is None:
            first = found
            error = np.abs(found - wanted).max() / np.sqrt(np.mean(wanted**2))
            assert error <= 3e-6, error
        np.testing.assert_array_equal(found.view(np.uint32), first.view(np.uint32), str(way))


def assert_stores(call: KernelCalls, kv: str, dim: int) -> None:
    """Keys and values of three rows of two slots come to lie where they should, and nothing else changes."""
    rng = np.random.default_rng(dim)
    n_kv_heads, slots, positions = 2, np.array([1, 0, 1], np.int32), np.array([33, 0, 34], np.int32)
    heads = rng.standard_normal((3, 1 + 2 * n_kv_heads, dim)).astype(np.float32)
    heads[1, 1, : min(dim, BLOCK)] = 0
    states = np.zeros((2, 2, n_kv_heads, 64, dim), np.float32)
    wanted = states.copy()
    for row in range(3):
        wanted[0, slots[row], :, positions[row]] = heads[row, 1 : 1 + n_kv_heads]
        wanted[1, slots[row], :, positions[row]] = heads[row, 1 + n_kv_heads :]
    keys, values, out = packed_keys(kv, states[0]), packed_values(kv, states[1]), np.empty((3, dim), np.float32)
    call(
        f"rope_store_{kv}", (1 + 2 * n_kv_heads, 3),
        qkv=heads, angles=np.repeat(np.array([[1, 0]], np.float32), 3, axis=0), q_norm=None, k_norm=None, out=out,
        positions=positions, slots=slots, keys=keys, values=values, n_heads=1, n_kv_heads=n_kv_heads, dim=dim, n_rot=2,
        interleaved=0, max_seq=64, eps=1e-5,
    )  # fmt: skip
    np.testing.assert_array_equal(out, heads[:, 0])
    np.testing.assert_array_equal(keys, packed_keys(kv, wanted[0]))
    np.testing.assert_array_equal(values, packed_values(kv, wanted[1]))
