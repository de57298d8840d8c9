"""A serve with TLS and API keys, and the commands of its own machine, which must get through to it."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import trustme
from real_program import TINY, Program, free_port

pytestmark = pytest.mark.slow  # a whole server and its engine start

KEY = "sk-this-is-to-be-seen-nowhere"


@pytest.fixture
def secured(program: Program) -> Iterator[Program]:
    """The program with a configuration file that asks for both."""
    program.root.mkdir()
    issued = trustme.CA().issue_cert("machine.example")
    (program.root / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    issued.private_key_pem.write_to_path(str(program.root / "key.pem"))
    (program.root / "config.toml").write_text(
        f'[serve]\napi_keys = ["{KEY}"]\ncertfile = "~/.hipfire/cert.pem"\nkeyfile = "~/.hipfire/key.pem"\n'
    )
    yield program
    program.run("stop", "--all", "--force")


def test_commands_of_the_same_machine_get_through(secured: Program) -> None:
    port = free_port()
    started = secured.run("serve", "-d", "--wait", str(TINY), str(port), HIPFIRE_LOG_LEVEL="debug")
    assert (started.returncode, started.stdout) == (0, f"https://127.0.0.1:{port}\n")
    shown = secured.run("ps", "--json")
    (serve, _) = secured.ps()
    assert (serve["port_state"], serve["status"], serve["in_flight"]) == ("open", "ok", 0)
    asked = secured.run("run", str(TINY), "-n", "4", "-t", "0", "Hello", HIPFIRE_PORT=str(port))
    assert (asked.returncode, asked.stderr) == (0, "")
    log = (secured.root / "serve.log").read_text()
    assert "POST /v1/chat/completions 200" in log
    assert f"curl --cacert {secured.root}/cert.pem https://127.0.0.1:{port}/v1/chat" in log
    assert "Bearer KEY" in log
    refused = secured.run("run", str(TINY), "Hello", HIPFIRE_PORT=str(port), HIPFIRE_API_KEYS="sk-of-somebody-else")
    assert refused.returncode == 1
    assert refused.stderr == (
        f"hipfire: the serve at https://127.0.0.1:{port}: the API key is not one of this server's"
        " (set serve.api_keys or HIPFIRE_API_KEYS)\n"
    )
    url = f"https://127.0.0.1:{port}/stats"
    assert httpx.get(url, verify=unverified(), trust_env=False).status_code == 401
    # Another certificate now lies where the serve's own was: who has that one is somebody else.
    trustme.CA().issue_cert("machine.example").cert_chain_pems[0].write_to_path(str(secured.root / "cert.pem"))
    mistaken = secured.run("run", str(TINY), "Hello", HIPFIRE_PORT=str(port))
    assert (mistaken.returncode, mistaken.stdout) == (1, "")
    assert "certificate verify failed" in mistaken.stderr
    stopped = secured.run("stop")
    assert f"the serve at https://127.0.0.1:{port}" in stopped.stderr
    for text in (log, shown.stdout, asked.stdout, refused.stderr, stopped.stderr, *arguments(secured)):
        assert KEY not in text


def unverified() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def arguments(program: Program) -> list[str]:
    return [Path(f"/proc/{pid}/cmdline").read_text() for pid in program.processes()]


def test_files_that_cannot_be_used_end_the_start_at_once(secured: Program) -> None:
    (secured.root / "key.pem").unlink()
    done = secured.run("serve", "-d", str(TINY), str(free_port()))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"hipfire: serve.keyfile: cannot read {secured.root / 'key.pem'}: No such file or directory\n"
    )
    assert secured.processes() == []


def test_a_key_that_no_header_can_carry_is_refused_without_being_shown(program: Program) -> None:
    program.root.mkdir()
    (program.root / "config.toml").write_text('[serve]\napi_keys = ["two words"]\n')
    done = program.run("serve", str(TINY))
    assert done.returncode == 1
    assert "serve.api_keys must be keys of visible ASCII characters" in done.stderr
    assert "two" not in done.stderr
