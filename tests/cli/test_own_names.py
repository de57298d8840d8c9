"""Names of models.toml, wherever a tag works."""

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from real_program import TIMEOUT_S, TINY, Program, read_until

Install = Callable[[str], Path]

MODELS = f"""
[model.mine]
aliases = ["m"]

[model.writer]
path = "{TINY}"
aliases = ["w"]
generation.max_tokens = 3
"""


@pytest.fixture
def named(program: Program, install: Install) -> Program:
    install("mine.gguf")
    (program.root / "models.toml").write_text(MODELS)
    return program


def test_they_are_listed(named: Program) -> None:
    rows = {row["tag"]: row for row in json.loads(named.run("list", "--json").stdout)}
    assert {tag: (row["path"], row["aliases"]) for tag, row in rows.items()} == {
        "mine": (str(named.models_dir / "mine.gguf"), ["m"]),
        "writer": (str(TINY), ["w"]),
    }


def test_they_are_deleted_only_from_the_models_folder(named: Program) -> None:
    refused = named.run("rm", "-y", "w")
    assert refused.returncode == 1
    assert "a file of your own is yours to delete" in refused.stderr
    assert named.run("rm", "-y", "m").returncode == 0
    assert TINY.exists()


@pytest.mark.slow  # engines start
def test_they_run_and_answer_requests_with_their_settings(named: Program) -> None:
    alone = json.loads(named.run("run", "w", "-t", "0", "--json", "Hello").stdout)
    assert (alone["model"], alone["usage"]["completion_tokens"]) == ("writer", 3)
    port = named.variables["HIPFIRE_PORT"]
    serve = named.start("serve", "m", port)
    read_until(serve, "stop it")
    body = {"model": "w", "messages": [{"role": "user", "content": "Hello"}], "temperature": 0}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    reply = httpx.post(url, json=body, timeout=TIMEOUT_S, trust_env=False).json()
    assert (reply["model"], reply["usage"]["completion_tokens"]) == ("writer", 3)
    refused = httpx.post(url, json={**body, "model": str(TINY)}, timeout=TIMEOUT_S, trust_env=False)
    assert refused.status_code == 404
    through = json.loads(named.run("run", "writer", "-t", "0", "--json", "Hello").stdout)
    assert (through["model"], through["text"]) == ("writer", alone["text"])
    # It is found as ps finds it.
    (named.root / "serve.pid").unlink()
    said = named.run("config", "set", "top_k", "1").stderr
    assert "the server that is up goes on with what it read: hipfire restart" in said


def test_a_mistake_in_the_file_stops_what_needs_it(named: Program) -> None:
    path = named.root / "models.toml"
    path.write_text("[model.mine]\nserve.port = 1\n")
    for command in (["list"], ["run", "mine", "Hello"], ["serve", "mine"], ["pull", "smollm2"]):
        done = named.run(*command)
        assert done.returncode == 1
        assert done.stderr == (
            f"hipfire: {path}:2: serve.port is the same for every model (set it in config.toml, not for mine)\n"
        )
