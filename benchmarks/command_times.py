"""Wall time of the commands that people wait for: `python benchmarks/command_times.py` prints the median of ten runs.

`ps` is timed with a serve of the tiny model up. Everything happens in a temporary state root.
"""

import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TINY = ROOT / "fixtures" / "tiny-llama" / "model.gguf"
RUNS = 10
LIMITS_MS = {"--help": 120.0, "ps": 250.0, "ps --json": 250.0}


def command_line(arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "hipfire", *arguments]


def median_ms(arguments: Sequence[str], environment: dict[str, str]) -> float:
    """The median wall time of a command, after one run that fills the caches."""
    times_ms = []
    for _ in range(RUNS + 1):
        begin = time.perf_counter()
        subprocess.run(command_line(arguments), env=environment, stdout=subprocess.DEVNULL, check=True)
        times_ms.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times_ms[1:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONPATH": str(ROOT)}
        serve = ["serve", "-d", "--wait", str(TINY), str(free_port())]
        subprocess.run(command_line(serve), env=environment, stdout=subprocess.DEVNULL, check=True)
        try:
            for words, limit_ms in LIMITS_MS.items():
                took_ms = median_ms(words.split(), environment)
                print(f"hipfire {words:<10} {took_ms:6.0f} ms  (limit {limit_ms:.0f} ms)")
        finally:
            subprocess.run(command_line(["stop", "--force"]), env=environment, check=True)


if __name__ == "__main__":
    main()
