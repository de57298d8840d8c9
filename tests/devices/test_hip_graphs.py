"""Decode steps as graphs: the same bits in one launch, and given up where they cannot be trusted.

On the kernels' sources, which run on this CPU; tests/emulator has the machine code.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import pytest
from devices.differential import make_step
from devices.random_model import RandomModel
from hip_host import link_library
from numpy.typing import NDArray

from hipfire.devices import hip_graphs, hip_launches
from hipfire.devices.base import CancelFlag, Executable, Limits
from hipfire.devices.hip import HipDevice
from hipfire.devices.hip_lowering import Addresses, LaunchSpec, StepShape, lower, n_chunks_of
from hipfire.errors import DeviceLost, StepCancelled
from hipfire.hip.device_list import list_devices
from hipfire.hip.functions import GRAPH_FUNCTIONS
from hipfire.hip.library import HipLibrary
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.program.program import Program

pytestmark = pytest.mark.slow  # the kernels are compiled

TOKENS = [(7 * i * i + 3 * i + 11) % 131 for i in range(140)]
INVALID_VALUE, LAUNCH_FAILURE = 1, 719

Log = pytest.LogCaptureFixture


class WatchedLibrary(HipLibrary):
    """The host's library, which counts what is called and fails where a test says."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.calls: Counter[str] = Counter()
        self.fails: dict[str, int] = {}
        self.missing: set[str] = set()
        self.runtime_version = (6, 3, 0)

    def has(self, name: str) -> bool:
        return name not in self.missing and super().has(name)

    def version(self) -> tuple[int, int, int]:
        return self.runtime_version

    def status(self, name: str, *arguments: Any) -> int:
        self.calls[name] += 1
        if name in self.fails and name == "hipStreamEndCapture":
            # It ends the capture, whatever it says.
            super().status(name, *arguments)
        return self.fails.get(name) or super().status(name, *arguments)


@pytest.fixture(scope="module")
def path(hip_kernels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("hip") / "library"
    return str(link_library(folder, hip_kernels, arch="gfx1030", wave_size=32))


@pytest.fixture
def library(path: str) -> WatchedLibrary:
    return WatchedLibrary(path)


@contextmanager
def loaded(library: WatchedLibrary, *, graphs: bool = True, n_slots: int = 1) -> Iterator[Executable]:
    """A small model; what it took is given back at the end."""
    program, tensors = RandomModel(n_layers=1, n_embd=32, n_ff=32).build()
    limits = Limits(max_tokens=132, max_outputs=4, n_slots=n_slots, max_seq=140, graphs=graphs)
    (gpu,) = list_devices(library)
    device = HipDevice(library, gpu, load_variant(machine_variants()[0]), 1)
    before = device.free_nbytes()
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    library.calls.clear()
    yield executable
    executable.close()
    assert device.free_nbytes() == before or library.fails


def decode(executable: Executable, positions: Sequence[int], slot: int = 0) -> list[NDArray[np.float32]]:
    """Logits of one token after the other."""
    return [
        executable.run(make_step([TOKENS[at]], start=at, slot=slot), CancelFlag()).whole()[0].copy() for at in positions
    ]


def bits(logits: Sequence[NDArray[np.float32]]) -> list[bytes]:
    return [row.tobytes() for row in logits]


@pytest.fixture
def one_by_one(library: WatchedLibrary) -> list[bytes]:
    """The bits of the first tokens without a graph."""
    with loaded(library, graphs=False) as executable:
        logits = bits(decode(executable, range(6)))
        assert not set(library.calls) & set(GRAPH_FUNCTIONS)
    assert len(set(logits)) == 6
    return logits


def test_a_repeated_decode_step_is_one_launch_of_the_same_bits(
    library: WatchedLibrary, one_by_one: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    with loaded(library) as executable:
        assert bits(decode(executable, range(2))) == one_by_one[:2]
        # Captured and compared with the second token.
        assert (library.calls["hipStreamBeginCapture"], library.calls["hipGraphLaunch"]) == (1, 1)
        library.calls.clear()
        assert bits(decode(executable, range(2, 6))) == one_by_one[2:]
    assert library.calls["hipGraphLaunch"] == library.calls["hipStreamSynchronize"] == 4
    assert library.calls["hipStreamBeginCapture"] == 0
    assert library.calls["hipGraphExecDestroy"] == 1


def test_the_highest_logits_come_by_a_graph_as_well(library: WatchedLibrary) -> None:
    answers = []
    for graphs in (False, True):
        with loaded(library, graphs=graphs) as executable:
            steps = [attrs.evolve(make_step([TOKENS[at]], start=at), n_best=3, whole=False) for at in range(5)]
            found = [executable.run(step, CancelFlag()).best for step in steps]
            answers.append([(best.ids.tobytes(), best.values.tobytes()) for best in found if best])
        assert library.calls["hipGraphLaunch"] == 4 * graphs
    assert len(set(answers[0])) == 5
    assert answers[0] == answers[1]


def test_prompts_are_never_captured(library: WatchedLibrary) -> None:
    with loaded(library) as executable:
        for _ in range(3):
            executable.run(make_step(TOKENS[:5], outputs=[4]), CancelFlag())
            executable.run(make_step(TOKENS[:5], outputs=[]), CancelFlag())
    assert not set(library.calls) & set(GRAPH_FUNCTIONS)


def test_a_sequence_that_grows_needs_few_graphs(library: WatchedLibrary) -> None:
    chunks = {1: 1, 128: 1, 129: 2, 257: 4, 512: 4, 513: 8, 1025: 16, 2049: 20, 2560: 20}
    assert {n: n_chunks_of(n, 20) for n in chunks} == chunks
    answers = []
    for graphs in (False, True):
        with loaded(library, graphs=graphs) as executable:
            # What comes before is zeros, which will do.
            answers.append(bits(decode(executable, range(125, 134))))
            assert library.calls["hipStreamBeginCapture"] == 2 * graphs
    assert answers[0] == answers[1]


def test_the_least_recently_used_graph_makes_room(library: WatchedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_graphs, "MAX_GRAPHS", 2)

    def step(executable: Executable, n: int) -> None:
        executable.run(make_step(TOKENS[:n], outputs=range(n)), CancelFlag())

    with loaded(library) as executable:
        for n in (1, 2, 1, 2, 1, 3):
            step(executable, n)
        # Three rows took the place of two, not of one; and two rows take that of one, when they come again.
        assert (library.calls["hipGraphExecDestroy"], library.calls["hipStreamBeginCapture"]) == (1, 2)
        step(executable, 1)
        step(executable, 2)
        assert library.calls["hipStreamBeginCapture"] == 2
        step(executable, 2)
        assert library.calls["hipStreamBeginCapture"] == 3
        library.calls.clear()
        # It was compared when it was captured for the first time.
        step(executable, 2)
        assert library.calls["hipStreamSynchronize"] == 1
    assert library.calls["hipGraphExecDestroy"] == 2


def test_the_least_recently_used_list_makes_room(library: WatchedLibrary, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hip_launches, "MAX_LISTS", 2)
    made: list[int] = []

    def counted(program: Program, at: Addresses, shape: StepShape) -> list[LaunchSpec]:
        made.append(shape.n_tokens)
        return lower(program, at, shape)

    monkeypatch.setattr(hip_launches, "lower", counted)
    with loaded(library) as executable:
        for n in (1, 2, 1, 3, 1, 2):
            executable.run(make_step(TOKENS[:n], outputs=[]), CancelFlag())
    # Three rows took the place of two, not of one.
    assert made == [1, 2, 3, 2]


def test_a_cancelled_step_launches_nothing(library: WatchedLibrary, one_by_one: list[bytes]) -> None:
    flag = CancelFlag()
    flag.set()
    with loaded(library) as executable:
        decode(executable, range(3))
        library.calls.clear()
        with pytest.raises(StepCancelled):
            executable.run(make_step([TOKENS[3]], start=3), flag)
        assert not library.calls
        assert bits(decode(executable, range(3, 6))) == one_by_one[3:]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hipStreamBeginCapture", "hipStreamBeginCapture: hipErrorUnknown"),
        ("hipStreamEndCapture", "hipStreamEndCapture: hipErrorUnknown"),
        ("hipGraphInstantiateWithFlags", "hipGraphInstantiateWithFlags: hipErrorUnknown"),
        ("hipGraphLaunch", "hipGraphLaunch: hipErrorUnknown"),
    ],
)
def test_a_runtime_that_cannot_gets_launches_one_by_one(
    library: WatchedLibrary, one_by_one: list[bytes], caplog: Log, name: str, reason: str
) -> None:
    caplog.set_level(logging.INFO)
    library.fails[name] = INVALID_VALUE
    with loaded(library) as executable:
        assert bits(decode(executable, range(6))) == one_by_one
    assert library.calls[name] == 1
    assert [record.levelname for record in caplog.records] == ["INFO"]
    assert f"HIP graphs are not used: {reason}" in caplog.text
    assert library.calls["hipGraphDestroy"] == (name != "hipStreamBeginCapture")


def lacks_functions(library: WatchedLibrary) -> None:
    library.missing.add("hipGraphLaunch")


def is_old(library: WatchedLibrary) -> None:
    library.runtime_version = (5, 5, 30201)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lacks_functions, "the runtime library has no hipGraphLaunch"),
        (is_old, "those of HIP 5.5.30201 lose kernels' arguments"),
    ],
)
def test_graphs_that_are_known_to_be_faulty_are_not_tried(
    library: WatchedLibrary,
    one_by_one: list[bytes],
    caplog: Log,
    change: Callable[[WatchedLibrary], None],
    reason: str,
) -> None:
    caplog.set_level(logging.INFO)
    change(library)
    with loaded(library) as executable:
        assert bits(decode(executable, range(6))) == one_by_one
    assert not set(library.calls) & set(GRAPH_FUNCTIONS)
    assert [record.message for record in caplog.records] == [f"HIP graphs are not used: {reason}"]


class StaleLibrary(WatchedLibrary):
    """Its graphs do nothing: what they should compute is still there from the step before."""

    def status(self, name: str, *arguments: Any) -> int:
        if name == "hipGraphLaunch":
            self.calls[name] += 1
            return 0
        return super().status(name, *arguments)


def test_a_graph_of_other_bits_is_given_up(path: str, one_by_one: list[bytes], caplog: Log) -> None:
    library = StaleLibrary(path)
    with loaded(library) as executable:
        assert bits(decode(executable, range(6))) == one_by_one
    assert library.calls["hipGraphLaunch"] == library.calls["hipGraphExecDestroy"] == 1
    (record,) = caplog.records
    assert (record.levelname, "they compute something else" in record.message) == ("WARNING", True)


def test_a_gpu_that_fails_in_a_graph_is_lost(library: WatchedLibrary) -> None:
    with loaded(library) as executable:
        decode(executable, range(3))
        library.fails["hipGraphLaunch"] = LAUNCH_FAILURE
        with pytest.raises(DeviceLost, match="hipErrorLaunchFailure"):
            decode(executable, [3])
        library.calls.clear()
        executable.close()
        # Every call would fail, and the process ends.
        assert not library.calls
