import json
import shutil
import signal
from collections.abc import Iterator

import pytest
from model_hub import ModelHub, model_hub
from real_program import TINY, Program

pytestmark = pytest.mark.slow  # the hub's library takes a while to import

REPO = "owner/tiny-GGUF"
NAME = f"hf:{REPO}:F32"


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with model_hub() as hub:
        hub.add(REPO, "tiny-F32.gguf", TINY.read_bytes())
        hub.gguf = {"architecture": "llama", "context_length": 512}
        yield hub


def test_a_model_of_the_hub_is_pulled_and_runs_by_its_name(program: Program, hub: ModelHub) -> None:
    path = program.models_dir / "tiny-F32.gguf"
    done = program.run("pull", NAME, **hub.variables())
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.splitlines() == [f"downloading {NAME} (1 MB)", f"{NAME} is in {path}"]
    assert path.read_bytes() == TINY.read_bytes()

    # The name means the file from now on, without the hub.
    hub.requests.clear()
    done = program.run("pull", NAME, **hub.variables())
    assert done.stderr == f"tiny-F32 is here already: {path}\n"
    done = program.run("run", NAME, "-n", "1", "hi", **hub.variables())
    assert done.returncode == 0, done.stderr
    assert hub.requests == []

    done = program.run("rm", "-y", NAME)
    assert (done.returncode, done.stderr) == (0, "deleted tiny-F32 (1 MB)\n")
    assert [other.name for other in program.models_dir.rglob("*") if other.is_file()] == ["tiny-F32.gguf.lock"]


def test_an_interrupted_pull_is_listed_and_goes_on_or_is_given_up(program: Program, hub: ModelHub) -> None:
    hub.stall_after = 1000
    pull = program.start("pull", NAME, **hub.variables())
    assert hub.stalled.wait(timeout=60)
    for _ in range(10_000):
        if any(path.stat().st_size for path in program.models_dir.rglob("*.partial")):
            break
        hub.closing.wait(0.005)
    done = program.run("rm", "-y", NAME)
    assert done.stderr == f"hipfire: {NAME} is being downloaded (stop it first: hipfire stop --all)\n"
    pull.send_signal(signal.SIGINT)
    assert pull.wait(timeout=60) == 130
    assert program.processes() == []
    assert not list(program.models_dir.glob("*.gguf"))

    done = program.run("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"{NAME} is here in part: 0 MB of 1 MB; hipfire pull {NAME} goes on, hipfire rm {NAME} gives it up\n"
    )
    (row,) = json.loads(program.run("list", "--json").stdout)
    assert (row["tag"], row["size_bytes"]) == (NAME, 1000)

    saved = program.models_dir / ".downloads" / "tiny-F32.gguf"
    given_up = program.home / "given-up"
    shutil.copytree(saved, given_up)
    hub.stall_after = None
    assert program.run("pull", NAME, **hub.variables()).returncode == 0
    assert hub.downloads[-1][1] == "bytes=1000-"

    (program.models_dir / "tiny-F32.gguf").unlink()
    shutil.copytree(given_up, saved)
    done = program.run("rm", "-y", NAME)
    assert (done.returncode, done.stderr) == (0, f"deleted what was downloaded of {NAME} (0 MB)\n")
    assert not saved.exists()


def test_what_cannot_be_pulled_is_one_line(program: Program, hub: ModelHub) -> None:
    hub.gguf["architecture"] = "mamba"
    done = program.run("pull", NAME, **hub.variables())
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hipfire: {NAME} is of the architecture 'mamba'; this build runs gemma3, llama "
        "(hipfire list -r shows what runs)\n"
    )
    done = program.run("pull", NAME, **hub.variables(HF_HUB_OFFLINE="1"))
    assert done.stderr == "hipfire: owner/tiny-GGUF is not here, and HF_HUB_OFFLINE forbids to download it\n"
    assert "qwen3.5:9b is of the architecture 'qwen35'" in program.run("pull", "qwen3.5").stderr
