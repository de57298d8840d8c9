"""GGUF files, whole or split into parts: `open_gguf`.

Source: ggml's `docs/gguf.md`. Like ggml's own reader it wants the tensors one after another, in the order in which
they are listed, each padded to `general.alignment`; so no two tensors can share bytes.
Knows no architecture beyond the order of its rotary pairs.
"""

import math
import re
import reprlib
from contextlib import ExitStack
from pathlib import Path

import attrs

from hipfire.dtypes import BY_GGML_TYPE, DType
from hipfire.errors import CorruptFile, NotAModelFile, TruncatedFile, UnsupportedFile
from hipfire.formats.checkpoint import Checkpoint, MetaValue, Tensor
from hipfire.formats.gguf_header import Cursor, read_counts, read_metadata
from hipfire.formats.mapped_file import DAMAGED, INCOMPLETE, MappedFile

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_TENSORS = 1 << 16
_MAX_DIMS = 4
_MAX_NBYTES = (1 << 63) - 1
_DEFAULT_ALIGNMENT = 32
# Length of the name and one byte of it, number of dimensions and one of them, type, offset.
_MIN_TENSOR_NBYTES = 8 + 1 + 4 + 8 + 4 + 8

# Types that ggml has or had and `dtypes` has not, to name them in the error.
_OTHER_TYPES = {
    4: "Q4_2", 5: "Q4_3", 9: "Q8_1", 15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S",
    20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64",
    29: "IQ1_M", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 34: "TQ1_0", 35: "TQ2_0", 36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8", 38: "IQ4_NL_8_8", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip

# Architectures in whose files a rotation pairs elements (2i, 2i+1) of Q and K; for Llama the converter reorders
# their rows so. Source: `llama_model_rope_type` of llama.cpp.
_INTERLEAVED = frozenset({
    "arcee", "arctic", "baichuan", "bailingmoe", "chameleon", "chatglm", "cohere2", "command-r", "deci", "deepseek",
    "deepseek2", "ernie4_5", "ernie4_5-moe", "granite", "granitehybrid", "granitemoe", "internlm2", "llama",
    "minicpm", "mistral3", "olmo", "orion", "plm", "smollm3", "starcoder", "xverse",
})  # fmt: skip

_PART_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf")


@attrs.frozen(kw_only=True)
class _TensorInfo:
    """A tensor's entry in the header. `offset` is in bytes from the start of the data section."""

    name: str
    dtype: DType
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self) -> int:
        return self.dtype.nbytes(math.prod(self.shape))


@attrs.frozen(kw_only=True)
class _Part:
    """One file of a model: what it says and the tensors that it holds."""

    file: MappedFile
    metadata: dict[str, MetaValue]
    tensors: dict[str, Tensor]


def open_gguf(path: Path) -> Checkpoint:
    """Open a GGUF file; of a split one, give the first part, and the others are found beside it.

    Raises NotAModelFile, TruncatedFile, CorruptFile, UnsupportedFile, ModelNotFound. Takes the time and memory of
    the header only: tensor data is mapped, not read.
    """
    with ExitStack() as cleanup:
        first = _open_part(path, cleanup)
        parts = [first, *(_open_part(other, cleanup) for other in _other_parts(first))]
        tensors = _joined(parts)
        architecture = first.metadata.get("general.architecture")
        if not isinstance(architecture, str) or not architecture:
            raise CorruptFile(f"{path} does not say its general.architecture", hint="convert the model anew")
        files = cleanup.pop_all()

    def close() -> None:
        tensors.clear()
        for part in parts:
            part.tensors.clear()
        files.close()

    return Checkpoint(
        path=path,
        architecture=architecture,
        metadata=first.metadata,
        tensors=tensors,
        nbytes=sum(part.file.nbytes for part in parts),
        rope_interleaved=architecture in _INTERLEAVED,
        files=[part.file for part in parts],
        close=close,
    )


def _open_part(path: Path, cleanup: ExitStack) -> _Part:
    file = MappedFile(path)
    cleanup.callback(file.close)
    _check_magic(file)
    cursor = Cursor(file)
    cursor.u32("the magic")
    _check_version(cursor.u32("the version"), path)
    n_tensors, n_keys = read_counts(cursor, most_tensors=_MAX_TENSORS, min_tensor_nbytes=_MIN_TENSOR_NBYTES)
    metadata = read_metadata(cursor, n_keys, path)
    alignment = _alignment(metadata, path)
    infos = _tensor_infos(cursor, n_tensors, alignment, path)
    data_start = _padded(cursor.position, alignment)
    tensors = {info.name: _tensor(info, data_start, file) for info in infos}
    return _Part(file=file, metadata=metadata, tensors=tensors)


def _check_magic(file: MappedFile) -> None:
    magic = file.data[: len(MAGIC)]
    if magic == MAGIC:
        return
    if MAGIC.startswith(magic):
        raise TruncatedFile(f"{file.path} ends after {file.nbytes} bytes", hint=INCOMPLETE)
    raise NotAModelFile(f"{file.path} is no GGUF file", hint="give the path of a .gguf file")


def _check_version(version: int, path: Path) -> None:
    if version in _VERSIONS:
        return
    if version & 0xFFFF == 0 and version >> 24:
        raise UnsupportedFile(f"{path} is a big-endian GGUF file", hint="convert the model for little-endian machines")
    supported = " and ".join(map(str, _VERSIONS))
    raise UnsupportedFile(
        f"{path} is GGUF version {version}; versions {supported} are supported", hint="convert the model anew"
    )


def _alignment(metadata: dict[str, MetaValue], path: Path) -> int:
    value = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(value) is not int or value <= 0 or value & (value - 1):
        raise CorruptFile(f"{path}: general.alignment is {reprlib.repr(value)}, not a power of two", hint=DAMAGED)
    return value


def _tensor_infos(cursor: Cursor, n_tensors: int, alignment: int, path: Path) -> list[_TensorInfo]:
    infos: list[_TensorInfo] = []
    names: set[str] = set()
    expected_offset = 0
    for i in range(n_tensors):
        info = _tensor_info(cursor, i, path)
        if info.name in names:
            raise CorruptFile(f"{path}: there are two tensors called {info.name!r}", hint=DAMAGED)
        if info.offset != expected_offset:
            raise CorruptFile(
                f"{path}: tensor {info.name!r} is at offset {info.offset}, it should be at {expected_offset}",
                hint=DAMAGED,
            )
        names.add(info.name)
        infos.append(info)
        expected_offset = _padded(info.offset + info.nbytes, alignment)
    return infos


def _tensor_info(cursor: Cursor, index: int, path: Path) -> _TensorInfo:
    name = cursor.name(f"the name of tensor {index}")
    what = f"tensor {name!r}"
    n_dims = cursor.u32(what)
    if not 1 <= n_dims <= _MAX_DIMS:
        raise CorruptFile(f"{path}: {what} has {n_dims} dimensions", hint=DAMAGED)
    dims = [cursor.u64(what) for _ in range(n_dims)]
    ggml_type = cursor.u32(what)
    offset = cursor.u64(what)
    if ggml_type not in BY_GGML_TYPE:
        known = _OTHER_TYPES.get(ggml_type)
        raise UnsupportedFile(
            f"{path}: {what} has the tensor type {known or f'number {ggml_type}'}, which this build does not have",
            hint="choose another quantisation of the model, such as Q4_K_M or Q8_0",
        )
    dtype = BY_GGML_TYPE[ggml_type]
    n_elements = math.prod(dims)
    if n_elements == 0 or n_elements * dtype.block_nbytes > _MAX_NBYTES:
        raise CorruptFile(f"{path}: {what} has the dimensions {dims}", hint=DAMAGED)
    if dims[0] % dtype.block:
        raise CorruptFile(
            f"{path}: {what} has rows of {dims[0]} elements, no whole number of {dtype.name} blocks of {dtype.block}",
            hint=DAMAGED,
        )
    return _TensorInfo(name=name, dtype=dtype, shape=tuple(reversed(dims)), offset=offset)


def _tensor(info: _TensorInfo, data_start: int, file: MappedFile) -> Tensor:
    start = data_start + info.offset
    if start + info.nbytes > file.nbytes:
        raise TruncatedFile(
            f"{file.path} ends after {file.nbytes} bytes; tensor {info.name!r} goes up to {start + info.nbytes}",
            hint=INCOMPLETE,
        )
    return Tensor(name=info.name, dtype=info.dtype, shape=info.shape, data=file.bytes_at(start, info.nbytes))


def _padded(nbytes: int, alignment: int) -> int:
    return -(-nbytes // alignment) * alignment


def _other_parts(first: _Part) -> list[Path]:
    """Paths of parts 2.. of a split model, by the naming rule of llama.cpp's gguf-split."""
    path, count = first.file.path, first.metadata.get("split.count", 1)
    if type(count) is not int or not 0 <= count <= 99999:
        raise CorruptFile(f"{path}: split.count is {reprlib.repr(count)}", hint=DAMAGED)
    if count <= 1:
        return []
    number = first.metadata.get("split.no")
    if number != 0:
        raise UnsupportedFile(f"{path} is not the first of {count} parts", hint="give the path of the first part")
    match = _PART_NAME.fullmatch(path.name)
    if match is None or int(match["number"]) != 1 or int(match["count"]) != count:
        raise UnsupportedFile(
            f"{path} is the first of {count} parts, but is not called so", hint=f"call it NAME-00001-of-{count:05}.gguf"
        )
    return [path.with_name(f"{match['stem']}-{i:05}-of-{count:05}.gguf") for i in range(2, count + 1)]


def _joined(parts: list[_Part]) -> dict[str, Tensor]:
    """The tensors of all parts, which must be as many as the first part promises."""
    tensors: dict[str, Tensor] = {}
    for i, part in enumerate(parts):
        if i and (part.metadata.get("split.no"), part.metadata.get("split.count")) != (i, len(parts)):
            raise CorruptFile(
                f"{part.file.path} does not call itself part {i + 1} of {len(parts)}",
                hint="its parts come from different models: download them again",
            )
        for name, tensor in part.tensors.items():
            if name in tensors:
                raise CorruptFile(f"{part.file.path}: another part has a tensor called {name!r} too", hint=DAMAGED)
            tensors[name] = tensor
    promised = parts[0].metadata.get("split.tensors.count", len(tensors))
    if len(parts) > 1 and promised != len(tensors):
        raise CorruptFile(
            f"{parts[0].file.path}: the parts have {len(tensors)} tensors, not {reprlib.repr(promised)}", hint=DAMAGED
        )
    return tensors
