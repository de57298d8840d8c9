import pytest
from real_program import TIMEOUT_S, TINY, Program, Serve, free_port

pytestmark = pytest.mark.slow  # a whole server and its engine start


def test_restart_replaces_the_serve(serve: Serve) -> None:
    port = free_port()
    done = serve.program.run("restart", "-d", "--wait", str(TINY), str(port))
    assert (done.returncode, done.stdout) == (0, f"http://127.0.0.1:{port}\n")
    assert serve.process.poll() == 0
    (new,) = [row for row in serve.program.ps() if row["role"] == "serve"]
    assert (new["port"], new["model"], new["port_state"]) == (port, str(TINY), "open")
    assert serve.program.run("stop").returncode == 0


def test_restart_on_the_same_port_as_before(serve: Serve) -> None:
    done = serve.program.run("restart", "-d", str(TINY), str(serve.port))
    assert done.stdout == f"http://127.0.0.1:{serve.port}\n"
    assert serve.program.run("stop").returncode == 0


def test_without_a_serve_it_is_serve(program: Program) -> None:
    done = program.run("restart", "-d", "--no-prewarm", str(TINY))
    assert (done.returncode, done.stderr) == (0, "no serve is running\n")
    assert program.run("stop").returncode == 0


@pytest.mark.parametrize("flags", [["--zzz"], ["--idle-timeout", "never"], ["1", "2"], ["--wait"]])
def test_a_mistake_stops_nothing(flags: list[str], serve: Serve) -> None:
    done = serve.program.run("restart", *flags, str(TINY))
    assert (done.returncode, done.stdout) == (2, "")
    assert "(see hipfire restart --help)" in done.stderr
    assert serve.process.poll() is None
    serve.process.terminate()
    assert serve.process.wait(timeout=TIMEOUT_S) == 0
