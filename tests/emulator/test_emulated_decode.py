"""Decode steps of the machine code as graphs, and GPUs that fail: in a graph, and under a server."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from devices.differential import make_step
from devices.random_model import RandomModel
from numpy.typing import NDArray
from real_program import TIMEOUT_S, Serve, serve_in

from emulator.conftest import ROOM, OpenDevice
from emulator.gpu import Gpu
from hipfire.devices.base import CancelFlag, Executable, Limits
from hipfire.devices.hip import HipDevice
from hipfire.errors import DeviceLost
from hipfire.hip.graph import Graph

pytestmark = pytest.mark.slow  # code objects are translated

TOKENS = (3, 40, 30, 7, 39, 8)


@contextmanager
def loaded(device: HipDevice, *, graphs: bool = True) -> Iterator[Executable]:
    program, tensors = RandomModel(n_layers=1, n_embd=32, n_ff=32, n_vocab=41).build()
    limits = Limits(max_tokens=4, max_outputs=2, n_slots=1, max_seq=16, graphs=graphs)
    executable = device.load(program, tensors, limits, on_progress=lambda fraction: None)
    yield executable
    executable.close()


def run(executable: Executable, position: int) -> NDArray:
    return executable.run(make_step([TOKENS[position]], start=position), CancelFlag()).whole().copy()


def test_a_graph_gives_the_bits_of_launches_one_by_one(
    open_hip: OpenDevice, arch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    launches, launch = [], Graph.launch

    def counted(graph: Graph) -> None:
        launches.append(graph)
        launch(graph)

    monkeypatch.setattr(Graph, "launch", counted)
    answers = []
    for graphs in (False, True):
        with loaded(open_hip(arch), graphs=graphs) as executable:
            answers.append([run(executable, at).tobytes() for at in range(len(TOKENS))])
    assert answers[0] == answers[1]
    # All but the first step, and all of them the same one.
    assert (len(launches), len(set(launches))) == (len(TOKENS) - 1, 1)


def test_a_kernel_that_faults_in_a_graph_loses_the_gpu(
    gpu: Gpu, open_hip: OpenDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "fault"
    monkeypatch.setenv("HIP_EMULATOR_FAULT_FILE", str(asked))
    with loaded(open_hip("gfx1100")) as executable:
        for at in range(3):
            run(executable, at)
        asked.touch()
        with pytest.raises(DeviceLost, match="the GPU failed: hipStreamSynchronize: hipErrorLaunchFailure"):
            run(executable, 3)
    assert not asked.exists()
    while gpu.library.hipDeviceSynchronize():
        gpu.library.emulatorClearFault()


def answer(serve: Serve) -> httpx.Response:
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 6, "temperature": 0}
    url = f"http://127.0.0.1:{serve.port}/v1/chat/completions"
    return httpx.post(url, json=body, timeout=TIMEOUT_S, trust_env=False)


def test_a_gpu_that_fails_costs_one_answer(emulated_library: Path, tmp_path: Path) -> None:
    libraries, asked = tmp_path / "lib", tmp_path / "fault"
    libraries.mkdir()
    (libraries / "libamdhip64.so").symlink_to(emulated_library)
    variables = {
        "HIPFIRE_DEVICE": "hip:0",
        "LD_LIBRARY_PATH": str(libraries),
        "HIP_EMULATOR_ARCH": "gfx1100",
        "HIP_EMULATOR_CACHE": str(ROOM / "translated"),
        "HIP_EMULATOR_FAULT_FILE": str(asked),
    }
    with serve_in(tmp_path, **variables) as serve:
        before, engine = answer(serve), serve.engine
        assert before.status_code == 200
        asked.touch()
        failed = answer(serve)
        assert (failed.status_code, failed.json()["error"]["code"]) == (503, "engine_unavailable")
        assert not asked.exists()
        after = answer(serve)
        assert (after.status_code, after.json()["choices"]) == (200, before.json()["choices"])
        assert serve.engine != engine
