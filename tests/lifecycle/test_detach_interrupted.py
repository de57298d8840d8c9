"""A start that is called off between the fork and the wait leaves no child behind."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys
from pathlib import Path
from hipfire.lifecycle.detach import Child, detach, wait_until_up
from hipfire.lifecycle.endpoint import Endpoint

child = detach(Path(sys.argv[1]))
if not isinstance(child, Child):
    signal.pause()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
os.kill(os.getpid(), int(sys.argv[2]))
try:
    wait_until_up(child, Endpoint(host="127.0.0.1", port=1), for_model=False)
except (KeyboardInterrupt, SystemExit):
    print(child.pid)
"""


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
def test_the_child_is_ended_by_whoever_waits_for_it(ending: signal.Signals, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "serve.log"), str(int(ending))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.stderr == ""
    child = int(done.stdout)
    assert not Path(f"/proc/{child}").exists()
