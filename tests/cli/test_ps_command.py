import signal

import pytest
from real_program import TINY, Program, Serve, free_port, read_until

pytestmark = pytest.mark.slow  # a whole server and its engine start


def test_nothing_runs(program: Program) -> None:
    done = program.run("ps")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "nothing is running; hipfire serve -d starts a server\n"
    assert program.ps() == []


def test_a_serve_and_its_engine_are_shown(shared_serve: Serve) -> None:
    serve, engine = shared_serve.program.ps()
    assert (serve["pid"], serve["role"], serve["model"]) == (shared_serve.process.pid, "serve", str(TINY))
    assert (serve["host"], serve["port"], serve["port_state"]) == ("127.0.0.1", shared_serve.port, "open")
    assert (serve["status"], serve["queue_depth"], serve["in_flight"]) == ("ok", 0, 0)
    assert engine["role"] == "engine"
    assert (engine["model"], engine["device"]) == (serve["model"], serve["device"])
    assert serve["device"].startswith("cpu")
    for row in (serve, engine):
        assert 1e6 < row["memory_bytes"] < 1e9
        assert 0 < row["uptime_s"] < 600
    assert {serve["pid"], engine["pid"]} == set(shared_serve.program.processes())


def test_the_table_has_a_process_a_line(shared_serve: Serve) -> None:
    header, serve, engine = shared_serve.program.run("ps").stdout.splitlines()
    assert header.split() == ["pid", "role", "model", "device", "memory", "up", "port", "status", "queue"]
    assert serve.split()[:3] == [str(shared_serve.process.pid), "serve", str(TINY)]
    assert serve.split()[-4:] == [str(shared_serve.port), "open", "ok", "0"]
    assert engine.split()[1] == "engine"


def test_another_state_root_sees_none_of_it(shared_serve: Serve, program: Program) -> None:
    assert program.ps() == []


def test_what_is_under_way_is_counted(slow_serve: Serve) -> None:
    with slow_serve.answer_under_way():
        row = slow_serve.program.ps()[0]
        assert (row["queue_depth"], row["in_flight"]) == (0, 1)
        slow_serve.process.send_signal(signal.SIGTERM)
        read_until(slow_serve.process, "stopping")
        # It finishes what is under way, and takes nothing more.
        assert slow_serve.program.ps()[0]["port_state"] == "closed"


def test_an_unloaded_serve_has_no_model(program: Program) -> None:
    process = program.start("serve", "--no-prewarm", str(TINY), str(free_port()))
    read_until(process, "listens on")
    row = program.ps()[0]
    assert (row["role"], row["model"], row["status"], row["device"]) == ("serve", None, "ok", None)
