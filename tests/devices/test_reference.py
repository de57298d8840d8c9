"""The reference device against formulas written out the slow way, and its promises as a device."""

import math
import platform

import numpy as np
import pytest
from devices.differential import joined, limits_for, make_step
from devices.random_model import RandomModel
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from hipfire.devices.base import CancelFlag, Limits, Step
from hipfire.devices.reference import ReferenceDevice, ReferenceExecutable
from hipfire.dtypes import DTYPES
from hipfire.errors import DeviceError, OutOfMemory, StepCancelled
from hipfire.program.operands import Buffer, Weight
from hipfire.program.ops import Activation
from hipfire.program.program import Builder, Program

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2, 3, 8, 4, 6]
Floats = NDArray[np.float32]


def load(
    program: Program, tensors: dict[str, NDArray[np.uint8]], limits: Limits, *, keep: bool = False
) -> ReferenceExecutable:
    device = ReferenceDevice.open()
    return device.load(program, tensors, limits, on_progress=lambda _: None, keep_buffers=keep)


def f32(name: str, *shape: int) -> Weight:
    return Weight(name=name, dtype=DTYPES["f32"], shape=shape)


def bytes_of(**arrays: Floats) -> dict[str, NDArray[np.uint8]]:
    return {name: np.ascontiguousarray(array, np.float32).reshape(-1).view(np.uint8) for name, array in arrays.items()}


def run_once(builder: Builder, last: Buffer, tensors: dict[str, NDArray[np.uint8]], step: Step) -> Floats:
    """What the buffer holds after one step."""
    program = builder.finish(builder.gather_outputs("outputs", last))
    executable = load(program, tensors, limits_for([step]), keep=True)
    executable.run(step, CancelFlag())
    return executable.read(last)


def test_embed_norm_and_linear() -> None:
    random = np.random.default_rng(0)
    table, norm = random.standard_normal((7, 6)), random.standard_normal(6)
    first, second, bias = random.standard_normal((4, 6)), random.standard_normal((2, 6)), random.standard_normal(2)
    builder = Builder()
    x = builder.embed("x", f32("table", 7, 6), scale=2.0)
    normed = builder.rms_norm("normed", x, f32("norm", 6), eps=0.5, residual=x)
    weights = [f32("first", 4, 6), f32("second", 2, 6)]
    y = builder.linear("y", normed, weights, biases=[None, f32("bias", 2)], residual=x)
    tensors = bytes_of(table=table, norm=norm, first=first, second=second, bias=bias)

    found = run_once(builder, y, tensors, make_step([5, 0, 2]))

    for row, token in enumerate([5, 0, 2]):
        embedded = 2 * table[token]
        mean_square = sum(value * value for value in embedded) / 6
        wanted = embedded / math.sqrt(mean_square + 0.5) * norm + embedded
        expected = np.concatenate([first @ wanted, second @ wanted + bias]) + embedded
        np.testing.assert_allclose(found[row], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gated(activation: Activation) -> None:
    table = np.array([[-100, -3, -0.5, 0, 0.5, 3, 100, 1, 2, 3, 4, 5, 6, 7]])
    builder = Builder()
    gated = builder.gated("gated", builder.embed("x", f32("table", 1, 14)), activation=activation)
    found = run_once(builder, gated, bytes_of(table=table), make_step([0]))[0]
    for gate, up, value in zip(table[0, :7], table[0, 7:], found, strict=True):
        if activation == "silu":
            expected = gate / (1 + math.exp(-gate)) * up
        else:
            expected = 0.5 * gate * (1 + math.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3))) * up
        assert value == pytest.approx(expected, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("interleaved", [True, False])
def test_partial_rotation_and_head_norms(interleaved: bool) -> None:
    """One head of Q, K and V each of 6 elements, of which 4 turn, at position 3."""
    random = np.random.default_rng(1)
    table, q_norm, k_norm = random.standard_normal((2, 18)), random.standard_normal(6), random.standard_normal(6)
    frequencies = np.array([0.7, 0.05], np.float32)
    builder = Builder()
    keys, values = (builder.kv_state(name, n_kv_heads=1, head_dim=6) for name in ("keys", "values"))
    q = builder.rope_store(
        "q",
        builder.embed("x", f32("table", 2, 18)),
        builder.rope_angles("angles", frequencies, scale=1.5),
        keys=keys,
        values=values,
        n_heads=1,
        interleaved=interleaved,
        q_norm=f32("q_norm", 6),
        k_norm=f32("k_norm", 6),
        eps=0.1,
    )
    # Over one position the softmax is 1: what is attended is V itself, and K does not matter.
    attended = builder.attention("attended", q, keys=keys, values=values, n_heads=1, scale=1.0, window=1)
    program = builder.finish(builder.gather_outputs("outputs", attended))
    step = make_step([1], start=3)
    executable = load(program, bytes_of(table=table, q_norm=q_norm, k_norm=k_norm), limits_for([step]), keep=True)
    logits = executable.run(step, CancelFlag()).whole()

    head = table[1, :6]
    expected = head / math.sqrt(np.mean(head**2) + 0.1) * q_norm
    pairs = [(0, 1), (2, 3)] if interleaved else [(0, 2), (1, 3)]
    for (i, j), frequency in zip(pairs, frequencies, strict=True):
        a, b, angle = expected[i], expected[j], 3 * float(frequency)
        expected[i] = 1.5 * (a * math.cos(angle) - b * math.sin(angle))
        expected[j] = 1.5 * (a * math.sin(angle) + b * math.cos(angle))
    np.testing.assert_allclose(executable.read(q)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(logits[0], table[1, 12:], rtol=1e-6)


@pytest.mark.parametrize("window", [None, 3])
def test_attention_over_groups(window: int | None) -> None:
    """Four heads of Q over two of K and V; nothing turns, so that K is what the table says."""
    random = np.random.default_rng(2)
    table = random.standard_normal((9, (4 + 2 + 2) * 5))
    builder = Builder()
    keys, values = (builder.kv_state(name, n_kv_heads=2, head_dim=5) for name in ("keys", "values"))
    qkv, angles = builder.embed("x", f32("table", 9, 40)), builder.rope_angles("angles", np.zeros(1, np.float32))
    q = builder.rope_store("q", qkv, angles, keys=keys, values=values, n_heads=4, interleaved=True)
    attended = builder.attention("attended", q, keys=keys, values=values, n_heads=4, scale=0.3, window=window)
    tokens = [4, 0, 8, 3, 3, 1]

    found = run_once(builder, attended, bytes_of(table=table), make_step(tokens))

    heads = table[tokens].reshape(6, 8, 5)
    for row in range(6):
        seen = range(0 if window is None else max(0, row - window + 1), row + 1)
        for head in range(4):
            weights = [math.exp(0.3 * float(heads[row, head] @ heads[past, 4 + head // 2])) for past in seen]
            expected = sum(w * heads[past, 6 + head // 2] for w, past in zip(weights, seen, strict=True))
            got = found[row, head * 5 : head * 5 + 5]
            np.testing.assert_allclose(got, expected / sum(weights), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("chunk", [1, 7, len(PROMPT)])
def test_a_row_does_not_depend_on_how_the_prompt_is_cut(chunk: int) -> None:
    """Bit for bit with OpenBLAS on x86-64; nobody promises that much of other BLAS libraries."""
    program, tensors = RandomModel(window=6).build()
    limits = Limits(max_tokens=32, max_outputs=32, n_slots=1, max_seq=32)
    whole = load(program, tensors, limits).run(make_step(PROMPT), CancelFlag()).whole()
    executable = load(program, tensors, limits)
    for start in range(0, len(PROMPT), chunk):
        rows = slice(start, start + chunk)
        logits = executable.run(make_step(PROMPT[rows], start=start), CancelFlag()).whole()
        if same_bits():
            assert np.array_equal(logits, whole[rows])
        else:
            np.testing.assert_allclose(logits, whole[rows], atol=1e-5)


def same_bits() -> bool:
    blas = [library["internal_api"] for library in ThreadpoolController().select(user_api="blas").info()]
    return blas == ["openblas"] and platform.machine() == "x86_64"


def test_sequences_do_not_see_each_other() -> None:
    program, tensors = RandomModel().build()
    limits = Limits(max_tokens=64, max_outputs=64, n_slots=3, max_seq=32)
    alone = [load(program, tensors, limits).run(make_step(PROMPT[:n]), CancelFlag()).whole()[-1] for n in (4, 9)]
    both = joined(make_step(PROMPT[:4], slot=2, outputs=[3]), make_step(PROMPT[:9], slot=0, outputs=[8]))
    together = load(program, tensors, limits).run(both, CancelFlag()).whole()
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_a_used_slot_can_start_again() -> None:
    program, tensors = RandomModel().build()
    executable = load(program, tensors, Limits(max_tokens=32, max_outputs=32, n_slots=1, max_seq=32))
    first = executable.run(make_step(PROMPT[:5]), CancelFlag()).whole().copy()
    executable.run(make_step(PROMPT), CancelFlag())
    assert np.array_equal(executable.run(make_step(PROMPT[:5]), CancelFlag()).whole(), first)


def test_a_copied_state_goes_on_as_the_original() -> None:
    program, tensors = RandomModel().build()
    executable = load(program, tensors, Limits(max_tokens=32, max_outputs=32, n_slots=2, max_seq=32))
    executable.run(make_step(PROMPT), CancelFlag())
    executable.run(make_step(PROMPT[::-1], slot=1), CancelFlag())
    executable.copy_state(0, 1, 5)
    original = executable.run(make_step(PROMPT[5:], start=5), CancelFlag()).whole().copy()
    assert np.array_equal(executable.run(make_step(PROMPT[5:], start=5, slot=1), CancelFlag()).whole(), original)


def test_a_step_may_want_no_logits() -> None:
    program, tensors = RandomModel().build()
    executable = load(program, tensors, Limits(max_tokens=32, max_outputs=1, n_slots=1, max_seq=32))
    assert executable.run(make_step(PROMPT, outputs=[]), CancelFlag()).whole().shape == (0, 131)


def test_a_cancelled_step_stops() -> None:
    program, tensors = RandomModel().build()
    executable = load(program, tensors, Limits(max_tokens=4, max_outputs=4, n_slots=1, max_seq=4))
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(StepCancelled):
        executable.run(make_step([1, 2]), cancel)
    cancel.clear()
    assert executable.run(make_step([1, 2]), cancel).whole().shape == (2, 131)


@pytest.mark.parametrize(
    ("message", "step"),
    [
        ("token id", make_step([131])),
        ("token id", make_step([-1])),
        ("position", make_step([1, 1], start=7)),
        ("slot", make_step([1], slot=2)),
        ("output row", make_step([1], outputs=[1])),
        ("do not fit", make_step([1] * 5)),
        ("do not fit", make_step([1] * 3, outputs=[0, 1, 2])),
        ("do not fit", make_step([], outputs=[])),
    ],
)
def test_a_step_outside_of_the_limits_is_refused(message: str, step: Step) -> None:
    program, tensors = RandomModel().build()
    executable = load(program, tensors, Limits(max_tokens=4, max_outputs=2, n_slots=2, max_seq=8))
    with pytest.raises(ValueError, match=message):
        executable.run(step, CancelFlag())


def test_memory_is_counted_before_it_is_taken() -> None:
    program, tensors = RandomModel(tied=True).build()
    limits = Limits(max_tokens=8, max_outputs=1, n_slots=2, max_seq=32)
    needed = ReferenceDevice.open().load_nbytes(program, limits)
    n_weights = sum(weight.n_elements for weight in program.weights)
    n_states = 2 * 2 * (2 * 32 * 2 * 16)
    # The most that is alive at once: the residual stream, the angles, and gate and up.
    n_activations = 8 * (64 + 16 + 2 * 96 + 96)
    assert needed == 4 * (n_weights + n_states + n_activations)
    exactly, short = (ReferenceDevice.open(available_nbytes=lambda n=n: n) for n in (needed, needed - 1))
    assert exactly.load(program, tensors, limits, on_progress=lambda _: None).memory_nbytes == needed
    with pytest.raises(OutOfMemory, match=r"needs \d+ MiB of memory and \d+ MiB are free"):
        short.load(program, tensors, limits, on_progress=lambda _: None)


def test_progress_ends_at_one() -> None:
    program, tensors = RandomModel().build()
    seen: list[float] = []
    limits = Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=1)
    ReferenceDevice.open().load(program, tensors, limits, on_progress=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_what_cannot_be_had_is_an_error() -> None:
    program, tensors = RandomModel().build()
    limits = Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=1)
    with pytest.raises(DeviceError, match="keeps keys and values in f32, not f16"):
        load(program, tensors, Limits(max_tokens=1, max_outputs=1, n_slots=1, max_seq=1, kv_cache="f16"))
    with pytest.raises(DeviceError, match=r"token_embd\.weight, which was not given"):
        load(program, {}, limits)
    with pytest.raises(DeviceError, match=r"token_embd\.weight: .* bytes"):
        load(program, tensors | {"token_embd.weight": tensors["token_embd.weight"][4:]}, limits)
    with pytest.raises(DeviceError, match="buffers were not kept"):
        load(program, tensors, limits).read(program.logits)
    with pytest.raises(DeviceError, match="0 threads"):
        ReferenceDevice.open(0)
