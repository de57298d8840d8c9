"""Instructions that attention runs to decode one token, as benchmarks/gpu_attention.py counted them.

Knows no cards and no times.
"""

import hashlib
import json
from pathlib import Path

from hipfire.kernels.hsaco import code_objects
from hipfire.kernels.instruction_counts import Counts, StaleCounts

PATH = Path(__file__).parent / "attention_counts.json"

N_HEADS, N_KV_HEADS, HEAD_DIM, N_POSITIONS = 32, 8, 128, 2000
"""What is counted: a layer of a model of 8 billion weights, 2000 positions after the prompt's beginning."""


def read_attention_counts(arch: str, path: Path = PATH) -> dict[str, Counts]:
    """By kernel; what is called weights there are the elements of keys and values. Raises StaleCounts."""
    document = json.loads(path.read_text(encoding="utf-8"))
    if document["objects"][arch] != hashlib.sha256(code_objects(arch)["attention"]).hexdigest():
        raise StaleCounts(f"{path.name} is of another build: run benchmarks/gpu_attention.py")
    n_elements = 2 * N_POSITIONS * N_KV_HEADS * HEAD_DIM
    return {kernel: Counts(n_weights=n_elements, n_rows=1, **row) for kernel, row in document["counts"][arch].items()}
