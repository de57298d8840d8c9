"""From a cold `hipfire serve` to the first token of an answer, and the memory that the engine then has.

    python benchmarks/start_up.py MODEL [--runs 5] [--json]

The model's file is read once before, so that it lies in the page cache. The clock starts when the program is started;
a client asks as soon as the port is open, as one that was told the address would. Linux: memory is read from /proc.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

MIB = 1 << 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", help="path of a GGUF file")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    path = Path(options.model).resolve()
    file_nbytes = len(path.read_bytes())
    runs = [measure(path) for _ in range(options.runs)]
    figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
    allowed_mib = 1.35 * file_nbytes / MIB + 150
    if options.json:
        print(json.dumps({"model": path.name, "file_mib": file_nbytes / MIB, **figures, "runs": runs}, indent=2))
        return
    print(f"{path.name}, {file_nbytes / MIB:.0f} MiB, medians of {options.runs} runs")
    print(f"  port open        {figures['port_s']:.2f} s")
    print(f"  first token      {figures['first_token_s']:.2f} s")
    print(
        f"  engine, resident {figures['rss_mib']:.0f} MiB (anonymous {figures['anonymous_mib']:.0f}, peak "
        f"{figures['peak_mib']:.0f}); 1.35 x file + 150 MiB is {allowed_mib:.0f}"
    )


def measure(path: Path) -> dict[str, float]:
    """One start, one answer, one stop."""
    port = free_port()
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "HIPFIRE_HOME": home}
        begin = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "hipfire", "serve", str(path), "127.0.0.1", str(port)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            wait_for_port(port, process)
            port_s = time.perf_counter() - begin
            first_token(f"http://127.0.0.1:{port}")
            first_token_s = time.perf_counter() - begin
            memory = engine_memory(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()
    return {"port_s": port_s, "first_token_s": first_token_s, **memory}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def wait_for_port(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.005)
        else:
            return
    raise SystemExit(f"serve ended with status {process.returncode}")


def first_token(url: str) -> None:
    body = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "stream": True}
    with httpx.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=60) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line.removeprefix("data: "))["choices"][0]["delta"]
                if delta.get("content"):
                    return
    raise SystemExit("no token came")


def engine_memory(serve_pid: int) -> dict[str, float]:
    """MiB of the one child of serve."""
    threads = Path(f"/proc/{serve_pid}/task").iterdir()
    (engine_pid,) = (pid for thread in threads for pid in (thread / "children").read_text().split())
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{engine_pid}/status").read_text().splitlines())

    def mib(name: str) -> float:
        return int(fields[name].split()[0]) / 1024

    return {"rss_mib": mib("VmRSS"), "anonymous_mib": mib("RssAnon"), "peak_mib": mib("VmHWM")}


if __name__ == "__main__":
    main()
