"""Clients that people have, each a program beside this file, which reports what it got.

The programs run on their own: what these libraries import, start in the background and warn of stays out of the tests.
The server is on a real socket. Behind it is an engine with a script, in the markup of Qwen 3.5, and once a real model.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
from scripted_families import family_server
from scripted_service import tiny_tokenizer, tokens_of
from trio import to_thread

from hipfire.wire.messages import Generate

HERE = Path(__file__).parent
# Some of these libraries take seconds to import, on a busy machine many.
PATIENCE_S = 120.0

CASES = ("answer", "stream", "tools", "stream_tools", "structured")

THOUGHT, TEXT = "Simple.", "Paris. 😀"
# Text that looks like the end of its own markup, quotes and no ASCII must come through every client as it is.
CITY = 'Montréal "été"\n</parameter> 雪'
CALL = (
    f"<tool_call>\n<function=weather>\n<parameter=city>\n{CITY}\n</parameter>\n"
    "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>"
)
CONCLUSION = "It is sunny."
PERSON = {"name": "Ada", "age": 36}

# LiteLLM fetches a list of prices otherwise; LangChain reports to its maker if told to.
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LANGSMITH_TRACING": "false", "AI_SDK_LOG_WARNINGS": "false"}


@attrs.frozen
class Client:
    """`shows_reasoning`: it passes `reasoning_content` on, which is no part of OpenAI's own API."""

    program: str
    shows_reasoning: bool = True

    def command(self) -> list[str]:
        path = HERE / self.program
        if path.suffix == ".py":
            return [sys.executable, "-W", "ignore", str(path)]
        node = shutil.which("node")
        if node is None or not (HERE / "node_modules").is_dir():
            reason = "node is not here, or not its packages: npm ci --prefix tests/clients"
            # A CI run may not skip.
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
        return [node, str(path)]

    def reports(self, asked: Sequence[tuple[str, str, str]]) -> list[dict[str, Any]]:
        """What it says of each case, asked for by name, address and model."""
        done = subprocess.run(
            [*self.command(), json.dumps(asked)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(HERE), **QUIET},
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        reports: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
        return reports


CLIENTS = {
    "openai-python": Client("openai_python.py"),
    "openai-node": Client("openai_node.mjs"),
    "ai-sdk": Client("ai_sdk.mjs"),
    "langchain": Client("langchain_client.py", shows_reasoning=False),
    "litellm": Client("litellm_client.py"),
}


def reply(message: Generate) -> list[int]:
    """What the scripted engine says: a call where there are tools, and an answer where there is a result of one."""
    prompt = b"".join(map(tiny_tokenizer().token_bytes, message.prompt)).decode()
    if "SUNNY" in prompt:
        return tokens_of(f"All is known.\n</think>\n\n{CONCLUSION}")
    if "person" in prompt:
        return tokens_of(f"{THOUGHT}\n</think>\n\n{json.dumps(PERSON)}")
    return tokens_of(f"{THOUGHT}\n</think>\n\n{CALL if prompt.startswith('T:weather,;') else TEXT}")


@pytest.mark.slow
@pytest.mark.parametrize("name", CLIENTS)
async def test_a_client(tmp_path: Path, smollm2_server: str, name: str) -> None:
    client = CLIENTS[name]
    async with family_server(tmp_path, "qwen3.5", "", reply=reply, patience_s=PATIENCE_S) as server:
        asked = [(case, server.url, "tiny") for case in CASES] + [("answer", smollm2_server, "smollm2:135m")]
        *scripted, real = await to_thread.run_sync(client.reports, asked)
        prompts = [len(message.prompt) for message in server.engine.prompts()]
        constrained = [message.grammar is not None for message in server.engine.prompts()]
    report = dict(zip(CASES, scripted, strict=True))
    for told in (report["answer"], report["stream"]):
        assert told["text"] == TEXT
        assert told["finish"] == "stop"
        assert told["usage"]["prompt_tokens"] == prompts[0]
        assert told["usage"]["completion_tokens"] == len(tokens_of(f"{THOUGHT}\n</think>\n\n{TEXT}"))
        assert told.get("reasoning") == (THOUGHT if client.shows_reasoning else None)
    assert len(report["stream"]["pieces"]) > 1
    assert "".join(report["stream"]["pieces"]) == TEXT
    for loop in (report["tools"], report["stream_tools"]):
        assert loop == {"text": CONCLUSION, "calls": [{"city": CITY, "days": 3}]}
    # Two plain ones, two loops of two turns each, and one with a schema.
    assert len(prompts) == 7
    assert constrained == [False] * 6 + [True]
    assert report["structured"] == PERSON
    assert "Paris" in real["text"]
