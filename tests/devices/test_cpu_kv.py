"""The CPU device's keys and values: what is kept of them, what it takes, copies, and numbers that are none."""

import numpy as np
import pytest
from devices.differential import joined, limits_for, make_step
from devices.random_model import RandomModel

from hipfire.devices.base import CancelFlag, Limits
from hipfire.devices.cpu import CpuDevice
from hipfire.kernels.select import machine_variants
from hipfire.program import ops

TOKENS = [(7 * i * i + 3 * i + 11) % 131 for i in range(75)]


@pytest.fixture(params=machine_variants())
def device(request: pytest.FixtureRequest) -> CpuDevice:
    return CpuDevice.open(2, variant=request.param)


# Small ones: with scales that half precision has a few bits for, and none at all.
@pytest.mark.parametrize("size", [1.0, 4e-6, 1e-8])
@pytest.mark.parametrize(("kv_cache", "room", "limit"), [("q8", 1 / 127, 127), ("q16", 1 + 2**-10, 8191)])
def test_an_integer_value_is_a_step_of_its_blocks_scale(
    device: CpuDevice, size: float, kv_cache: str, room: float, limit: int
) -> None:
    head_dim = 72
    program, tensors = RandomModel(n_layers=1, n_heads=1, n_kv_heads=1, head_dim=head_dim).build()
    name = "blk.0.attn_v.weight"
    tensors[name] = (tensors[name].view(np.float32) * np.float32(size)).view(np.uint8)
    limits = limits_for([make_step(TOKENS)], kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda _: None, keep_buffers=True)
    (store,) = (op for op in program.ops if isinstance(op, ops.RopeStore))
    (attention,) = (op for op in program.ops if isinstance(op, ops.Attention))
    for token in TOKENS[:20]:
        executable.run(make_step([token]), CancelFlag())
        # A first token attends to itself alone: what comes out is its value as it is kept.
        value, found = executable.read(store.qkv)[0, -head_dim:], executable.read(attention.out)[0]
        for start in range(0, head_dim, 32):
            block = value[start : start + 32]
            scale = np.float32(np.float16(np.abs(block).max() * np.float32(room)))
            unit = scale if kv_cache == "q8" else scale / np.float32(8192)
            inverse = np.float32(1) / unit if unit else np.float32(0)
            expected = np.clip(np.rint(block * inverse), -limit, limit) * unit
            np.testing.assert_allclose(found[start : start + 32], expected, rtol=1e-6)


def test_a_state_takes_what_its_elements_and_their_scales_do(device: CpuDevice) -> None:
    program, _ = RandomModel(head_dim=64).build()

    def slot_nbytes(kv_cache: str) -> int:
        one, two = (
            device.load_nbytes(program, Limits(max_tokens=1, max_outputs=1, n_slots=n, max_seq=4096, kv_cache=kv_cache))
            for n in (1, 2)
        )
        return two - one

    assert slot_nbytes("q8") * 32 == slot_nbytes("f16") * 17
    assert slot_nbytes("q16") * 32 == slot_nbytes("f16") * 33


@pytest.mark.parametrize("kv_cache", ["q16", "q8", "f16"])
def test_a_slot_that_held_garbage_is_as_good_as_new(device: CpuDevice, kv_cache: str) -> None:
    program, tensors = RandomModel(head_dim=24).build()
    limits = limits_for([make_step(TOKENS)], kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    clean = executable.run(make_step(TOKENS[:9]), CancelFlag()).whole().copy()
    for state in executable._states.values():  # noqa: SLF001  (what a sequence with broken numbers leaves behind)
        state[:] = 0xFF
    steps = make_step(TOKENS[:1]), make_step(TOKENS[1:9], start=1)
    again = np.concatenate([executable.run(step, CancelFlag()).whole().copy() for step in steps])
    np.testing.assert_array_equal(again.view(np.uint32), clean.view(np.uint32))


@pytest.mark.parametrize("kv_cache", ["q16", "q8", "f16", "f32"])
@pytest.mark.parametrize("head_dim", [24, 10])
@pytest.mark.parametrize("n", [1, 31, 32, 33, 50])
def test_a_copied_state_goes_on_as_the_original(device: CpuDevice, kv_cache: str, head_dim: int, n: int) -> None:
    program, tensors = RandomModel(n_kv_heads=2, head_dim=head_dim).build()
    whole = make_step(TOKENS[:60], slot=1)
    executable = device.load(
        program, tensors, limits_for([whole, make_step([1], slot=2)], kv_cache=kv_cache), on_progress=lambda _: None
    )
    expected = executable.run(whole, CancelFlag()).whole()[n:].copy()
    executable.run(make_step(TOKENS[5:65], slot=2), CancelFlag())
    executable.copy_state(1, 2, n)
    copied = executable.run(make_step(TOKENS[n:60], start=n, slot=2), CancelFlag()).whole().copy()
    original = executable.run(make_step(TOKENS[n:60], start=n, slot=1), CancelFlag()).whole()
    np.testing.assert_array_equal(copied.view(np.uint32), expected.view(np.uint32))
    np.testing.assert_array_equal(original.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("kv_cache", ["q16", "q8", "f16"])
@pytest.mark.parametrize("value", [np.inf, np.nan])
@pytest.mark.parametrize("window", [None, 7])
def test_what_is_no_number_is_seen_by_those_only_that_attend_to_it(
    device: CpuDevice, window: int | None, value: float, kv_cache: str
) -> None:
    program, tensors = RandomModel(n_layers=1, n_kv_heads=1, head_dim=24, window=window).build()
    poison, at = 130, 37
    table = tensors["token_embd.weight"].view(np.float32).reshape(131, -1).copy()
    table[poison] = value
    tensors |= {"token_embd.weight": table.view(np.uint8).reshape(-1)}
    tokens = [token % 130 for token in TOKENS]
    clean = joined(make_step(tokens), make_step(tokens, slot=1))
    broken = joined(make_step([*tokens[:at], poison, *tokens[at + 1 :]]), make_step(tokens, slot=1))
    limits = limits_for([clean], kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    # Each token's logit of the poisoned row of the tied table is no number either.
    expected = executable.run(clean, CancelFlag()).whole()[:, :poison].copy()
    found = executable.run(broken, CancelFlag()).whole()[:, :poison]
    sees = np.arange(len(found)) - at
    sees = (sees >= 0) & (sees < (window or len(tokens))) & (np.arange(len(found)) < len(tokens))
    assert not np.isfinite(found[sees]).any()
    np.testing.assert_array_equal(found[~sees].view(np.uint32), expected[~sees].view(np.uint32))


@pytest.mark.parametrize("kv_cache", ["q16", "q8", "f16"])
# A few queries, many that see parts of a tile, and many of which the first sees one whole tile and no other.
@pytest.mark.parametrize(("start", "n"), [(0, 1), (0, 9), (31, 9)])
def test_a_value_that_is_no_number_is_seen_though_its_key_is_one(
    device: CpuDevice, kv_cache: str, start: int, n: int
) -> None:
    program, tensors = RandomModel(n_layers=1, n_heads=2, n_kv_heads=1, head_dim=24).build()
    weight = tensors["blk.0.attn_v.weight"].view(np.float32).copy()
    weight[0] = np.nan
    tensors |= {"blk.0.attn_v.weight": weight.view(np.uint8)}
    (attention,) = (op for op in program.ops if isinstance(op, ops.Attention))
    limits = limits_for([make_step(TOKENS)], kv_cache=kv_cache)
    executable = device.load(program, tensors, limits, on_progress=lambda _: None, keep_buffers=True)
    executable.run(make_step(TOKENS[: max(start, 1)]), CancelFlag())
    executable.run(make_step(TOKENS[start : start + n], start=start), CancelFlag())
    assert np.isnan(executable.read(attention.out).reshape(n, 2, 24)[:, :, 0]).all()
