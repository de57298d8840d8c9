"""Small models with random weights in any format and of any shape, for running one Program on two devices."""

import math
from pathlib import Path

import attrs
import numpy as np
from numpy.typing import NDArray

from hipfire.dtypes import DTYPES, DType, dequantize
from hipfire.formats.checkpoint import Checkpoint, MetaValue, Tensor
from hipfire.models.registry import build_program
from hipfire.program.program import Program

# Where a block of a format has its float16 scales, and how large each is against the first, such that the values
# come out about as often below zero as above.
BLOCK_SCALES = {
    "q4_0": {0: 1.0},
    "q4_1": {0: 1.0, 2: -7.5},
    "q5_0": {0: 1.0},
    "q5_1": {0: 1.0, 2: -15.5},
    "q8_0": {0: 1.0},
    "q2_k": {80: 1.0, 82: 1.5},
    "q3_k": {108: 1.0},
    "q4_k": {0: 1.0, 2: 7.5},
    "q5_k": {0: 1.0, 2: 15.5},
    "q6_k": {208: 1.0},
}


@attrs.frozen(kw_only=True)
class RandomModel:
    """What to make. Matrices are of `dtype` where their rows are whole blocks of it, else float32, as norms are."""

    architecture: str = "llama"
    dtype: str = "f32"
    table_dtype: str | None = None
    """Of the embedding and the output matrix; None: `dtype`."""
    n_layers: int = 2
    n_vocab: int = 131
    n_embd: int = 64
    n_ff: int = 96
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    n_rot: int | None = None
    window: int | None = None
    tied: bool = True
    biases: bool = False
    interleaved: bool = True
    seed: int = 0

    def checkpoint(self) -> Checkpoint:
        """As if it had been read from a file."""
        maker = _Maker(self)
        maker.add_tensors()
        return Checkpoint(
            path=Path(f"random-{self.architecture}"),
            architecture=self.architecture,
            metadata=self._metadata(),
            tensors=maker.tensors,
            nbytes=sum(tensor.data.size for tensor in maker.tensors.values()),
            rope_interleaved=self.interleaved,
            close=lambda: None,
        )

    def build(self) -> tuple[Program, dict[str, NDArray[np.uint8]]]:
        """The Program, and the bytes of the tensors by name."""
        checkpoint = self.checkpoint()
        tensors = {name: tensor.data for name, tensor in checkpoint.tensors.items()}
        return build_program(checkpoint).program, tensors

    def _metadata(self) -> dict[str, MetaValue]:
        values: dict[str, MetaValue | None] = {
            "block_count": self.n_layers,
            "context_length": 512,
            "embedding_length": self.n_embd,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": 1e-5,
            "attention.sliding_window": self.window,
            "rope.dimension_count": self.n_rot,
            "rope.freq_base": 10000.0,
        }
        return {f"{self.architecture}.{key}": value for key, value in values.items() if value is not None}


def random_bytes(rng: np.random.Generator, dtype: DType, shape: tuple[int, ...], spread: float) -> NDArray[np.uint8]:
    """Bytes of a tensor whose values have about this standard deviation; every bit pattern of a block may come."""
    n = math.prod(shape)
    if dtype.name not in BLOCK_SCALES:
        values = (rng.standard_normal(n) * spread).astype(np.float32)
        if dtype.name == "bf16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        return values.astype(dtype.name.replace("f", "float")).view(np.uint8)
    blocks = rng.integers(0, 256, (n // dtype.block, dtype.block_nbytes), dtype=np.uint8)
    # No two blocks alike, so that a scale of the wrong row or column shows.
    scales = rng.uniform(0.5, 1.5, len(blocks)) * rng.choice((-1.0, 1.0), len(blocks))
    _set_scales(blocks, dtype, scales)
    unit = dequantize(blocks.reshape(-1), dtype, shape).std()
    _set_scales(blocks, dtype, scales * (spread / unit))
    return blocks.reshape(-1)


def _set_scales(blocks: NDArray[np.uint8], dtype: DType, scales: NDArray[np.float64]) -> None:
    for offset, ratio in BLOCK_SCALES[dtype.name].items():
        halves = (scales * ratio).astype(np.float16)
        blocks[:, offset : offset + 2] = halves.view(np.uint8).reshape(-1, 2)


class _Maker:
    def __init__(self, model: RandomModel) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._model = model
        self._rng = np.random.default_rng(model.seed)

    def add_tensors(self) -> None:
        model = self._model
        table_dtype = model.table_dtype or model.dtype
        self._matrix("token_embd", model.n_vocab, model.n_embd, dtype=table_dtype)
        if not model.tied:
            self._matrix("output", model.n_vocab, model.n_embd, dtype=table_dtype)
        self._norm("output_norm", model.n_embd)
        for i in range(model.n_layers):
            self._add_layer(f"blk.{i}")

    def _add_layer(self, layer: str) -> None:
        model = self._model
        q_width, kv_width = model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
        for name, n_out, n_in in (
            ("attn_q", q_width, model.n_embd),
            ("attn_k", kv_width, model.n_embd),
            ("attn_v", kv_width, model.n_embd),
            ("attn_output", model.n_embd, q_width),
            ("ffn_gate", model.n_ff, model.n_embd),
            ("ffn_up", model.n_ff, model.n_embd),
            ("ffn_down", model.n_embd, model.n_ff),
        ):
            self._matrix(f"{layer}.{name}", n_out, n_in, dtype=model.dtype)
            if model.biases:
                self._add(f"{layer}.{name}.bias", "f32", (n_out,), spread=0.3)
        norms = ["attn_norm", "ffn_norm"]
        if model.architecture == "gemma3":
            norms += ["post_attention_norm", "post_ffw_norm"]
            for name in ("attn_q_norm", "attn_k_norm"):
                self._norm(f"{layer}.{name}", model.head_dim)
        for name in norms:
            self._norm(f"{layer}.{name}", model.n_embd)

    def _matrix(self, name: str, n_out: int, n_in: int, *, dtype: str) -> None:
        whole = n_in % DTYPES[dtype].block == 0
        self._add(f"{name}.weight", dtype if whole else "f32", (n_out, n_in), spread=n_in**-0.5)

    def _norm(self, name: str, n: int) -> None:
        values = (1 + 0.1 * self._rng.standard_normal(n)).astype(np.float32)
        self._put(f"{name}.weight", DTYPES["f32"], (n,), values.view(np.uint8))

    def _add(self, name: str, dtype: str, shape: tuple[int, ...], *, spread: float) -> None:
        self._put(name, DTYPES[dtype], shape, random_bytes(self._rng, DTYPES[dtype], shape, spread))

    def _put(self, name: str, dtype: DType, shape: tuple[int, ...], data: NDArray[np.uint8]) -> None:
        self.tensors[name] = Tensor(name=name, dtype=dtype, shape=shape, data=data)
