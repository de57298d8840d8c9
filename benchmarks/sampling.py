"""What choosing a token costs: CPU time of one core for the usual settings, by size of vocabulary.

    python benchmarks/sampling.py [--vocabulary 49152 262144] [--repeats 30] [--json]

Rows are like those of a model in the middle of a text: a few tokens that stand out, and a long tail that falls as
Zipf's law has it. Best of the repeats, for the machine may be busy; `numpy` is where there are no compiled kernels.
"""

import argparse
import json
import time
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from hipfire.devices.logits import RowMath
from hipfire.devices.native_row_math import NativeRowMath
from hipfire.devices.numpy_row_math import NumpyRowMath
from hipfire.engine.sampler import choose
from hipfire.kernels.select import load_variant, machine_variants
from hipfire.wire.messages import Sampling

SETTINGS: Mapping[str, Sampling] = {
    "greedy": Sampling(),
    "temperature": Sampling(temperature=1.0),
    "top-p 0.95": Sampling(temperature=1.0, top_p=0.95),
    "top-k 40, top-p, min-p": Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05),
    "min-p 0.05": Sampling(temperature=1.0, min_p=0.05),
    "5 logprobs": Sampling(n_logprobs=5),
    "penalties, top-k 40": Sampling(temperature=0.8, top_k=40, repeat_penalty=1.1, frequency_penalty=0.1),
    "grammar, top-k 40": Sampling(temperature=0.8, top_k=40),
    "grammar, temperature": Sampling(temperature=0.8),
}
N_RECENT = 256
N_ALLOWED = 2000
CALLS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vocabulary", type=int, nargs="+", default=[49152, 262144])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", action="store_true", help="one JSON document")
    options = parser.parse_args()
    every: dict[str, RowMath] = {name: NativeRowMath(load_variant(name)) for name in machine_variants()}
    every["numpy"] = NumpyRowMath()
    figures = {
        str(n): {
            setting: {name: measure(n, setting, math, options.repeats) for name, math in every.items()}
            for setting in SETTINGS
        }
        for n in options.vocabulary
    }
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    for n, rows in figures.items():
        print(f"{n} tokens, ms of CPU time" + "".join(f"{name:>16}" for name in every))
        for setting, times in rows.items():
            print(f"  {setting:28}" + "".join(f"{ms:16.3f}" for ms in times.values()))


def logits_like(n: int, seed: int) -> NDArray[np.float32]:
    """Entropy of about 3 bits: of the probability, 95 % is that of some 50 tokens."""
    rng = np.random.default_rng(seed)
    ranked = -1.6 * np.log(1 + np.arange(n)) + rng.standard_normal(n) * 0.5
    return rng.permutation(ranked).astype(np.float32)


def measure(n: int, setting: str, row_math: RowMath, n_repeats: int) -> float:
    """Milliseconds of CPU time of one choice."""
    rng = np.random.default_rng(1)
    # Another row each time, as a model gives: no branch learns them by heart.
    rows = [logits_like(n, seed) for seed in range(CALLS)]
    recent = rng.integers(0, n, N_RECENT).tolist() if setting.startswith("penalties") else ()
    allowed = None
    if setting.startswith("grammar"):
        allowed = np.zeros(n, np.bool_)
        allowed[rng.choice(n, N_ALLOWED, replace=False)] = True
    sampling, best_ns = SETTINGS[setting], []
    for _ in range(n_repeats):
        start = time.thread_time_ns()
        for i, row in enumerate(rows):
            choose(row, sampling, recent=recent, n=N_RECENT + i, allowed=allowed, row_math=row_math)
        best_ns.append(time.thread_time_ns() - start)
    return min(best_ns) / CALLS / 1e6


if __name__ == "__main__":
    main()
