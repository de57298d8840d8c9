import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from hipfire.lifecycle.processes import DOWNLOAD, ENGINE, SERVE, Process, announced, find_children, find_processes
from hipfire.lifecycle.procfs import start_time
from hipfire.lifecycle.stop import kill, terminate
from hipfire.service.engine_process import spawn_engine

# What a process must have among its arguments to be looked into.
NAME = "hipfire"


@contextmanager
def child(code: str, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    """A Python process that runs this code, and has printed a line."""
    command = [sys.executable, "-c", code, NAME, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            yield process
        finally:
            process.kill()


def announce(home: Path) -> str:
    """Code of a process that announces itself as a serve of a state root and stays."""
    return (
        "import time\nfrom pathlib import Path\nfrom hipfire.lifecycle.endpoint import Endpoint\n"
        "from hipfire.lifecycle.processes import announced\n"
        f"with announced(Path({str(home)!r}), 'serve', endpoint=Endpoint(host='h', port=1)):\n"
        "    print('up', flush=True); time.sleep(600)"
    )


STAY = "import time; print('up', flush=True); time.sleep(600)"
IGNORE = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN);" + STAY


def process_of(pid: int) -> Process:
    return Process(home="", role=SERVE, pid=pid, started=start_time(pid) or 0)


def test_a_process_is_found_by_what_it_says_of_itself(tmp_path: Path) -> None:
    with child(announce(tmp_path)) as process:
        (found,) = find_processes(tmp_path)
        assert (found.pid, found.role, found.port, found.alive) == (process.pid, SERVE, 1, True)
        assert found in find_processes(None)
        assert find_processes(tmp_path / "other") == []
    assert not found.alive
    assert find_processes(tmp_path) == []


def test_a_process_may_be_two_things(tmp_path: Path) -> None:
    twice = f"with announced(Path({str(tmp_path)!r}), 'download'), announced("
    with child(announce(tmp_path).replace("with announced(", twice)):
        assert {process.role for process in find_processes(tmp_path)} == {SERVE, DOWNLOAD}


def test_arguments_and_an_open_file_of_that_name_prove_nothing(tmp_path: Path) -> None:
    pretend = "import os, sys; fd = os.memfd_create('hipfire-process'); os.write(fd, sys.argv[2].encode());" + STAY
    another = json.dumps({"home": str(tmp_path), "role": "serve", "pid": 1, "started": 2})
    for text in (another, "", "[]", "{}", '{"pid": []}'):
        with child(pretend, text):
            assert find_processes(tmp_path) == []


def test_a_child_that_inherits_the_file_is_not_its_parent(tmp_path: Path) -> None:
    code = announce(tmp_path).replace("print(", "__import__('os').fork(); print(")
    with child(code) as process:
        (found,) = find_processes(tmp_path)
        assert found.pid == process.pid
        assert len(find_children(found)) == 1
        kill([found])


@pytest.mark.slow
async def test_an_engine_is_found_by_the_state_root_it_was_given(tmp_path: Path) -> None:
    spawn = partial(spawn_engine, "error", tmp_path)
    process = await spawn()
    assert process.stdin is not None
    assert process.stdout is not None
    with trio.fail_after(60):
        await process.stdout.receive_some()
    (found,) = find_processes(tmp_path)
    assert (found.pid, found.role) == (process.pid, ENGINE)
    with trio.fail_after(60):
        await process.stdin.aclose()
        await process.wait()
    await process.stdout.aclose()


def test_what_ends_at_a_signal_is_not_left() -> None:
    with child(STAY) as process:
        assert terminate([process_of(process.pid)], timeout_s=60) == []
        assert process.wait() < 0


def test_what_does_not_end_is_left_and_may_be_killed_with_its_children() -> None:
    with child(IGNORE.replace("print", "import os; os.fork(); print")) as process:
        own = process_of(process.pid)
        (grandchild,) = find_children(own)
        assert terminate([own], timeout_s=0) == [own]
        kill([own])
        assert process.wait() == -9
        assert not grandchild.alive


def test_a_process_of_the_same_number_but_another_start_gets_no_signal() -> None:
    own = Process(home="", role=SERVE, pid=os.getpid(), started=1)
    gone = Process(home="", role=SERVE, pid=2**22 + 1, started=1)
    assert terminate([own, gone], timeout_s=60) == []
    kill([own, gone])


def test_ours_is_announced_for_as_long_as_the_block_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # pytest has no `hipfire` among its arguments.
    monkeypatch.setattr("hipfire.lifecycle.processes.arguments", lambda pid: [NAME] if pid == os.getpid() else [])
    with announced(tmp_path, DOWNLOAD, model="m"):
        (found,) = find_processes(tmp_path)
        assert (found.pid, found.role, found.model) == (os.getpid(), DOWNLOAD, "m")
    assert find_processes(tmp_path) == []
