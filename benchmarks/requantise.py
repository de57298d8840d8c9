"""Writes a GGUF file anew with its matrices in another format: to measure the formats that a model is not published in.

`python benchmarks/requantise.py MODEL.gguf q8_0 OUT.gguf`. Metadata is copied as it is; vectors stay float32.
Needs the gguf package of the `test` extra. What was lost in the first quantisation stays lost.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
from numpy.typing import NDArray

FORMATS = {"f32": gguf.GGMLQuantizationType.F32, "f16": gguf.GGMLQuantizationType.F16}
FORMATS |= {name: gguf.GGMLQuantizationType[name.upper()] for name in ("q8_0", "q4_0", "q4_1", "q5_0", "q5_1")}
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9}
"""The numbers of `general.file_type`."""


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, file_type: int) -> None:
    """Every field but those that the writer writes by itself."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == gguf.Keys.General.ARCHITECTURE:
            continue
        value = file_type if field.name == gguf.Keys.General.FILE_TYPE else field.contents()
        element = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, value, field.types[0], sub_type=element)


def requantise(source: Path, name: str, target: Path) -> None:
    """Raises FileExistsError rather than write over a file."""
    if target.exists():
        raise FileExistsError(target)
    reader = gguf.GGUFReader(source)
    architecture = reader.fields[gguf.Keys.General.ARCHITECTURE].contents()
    writer = gguf.GGUFWriter(target, architecture)
    copy_metadata(reader, writer, FILE_TYPES[name])
    for tensor in reader.tensors:
        values: NDArray[np.float32] = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        kind = FORMATS[name] if values.ndim > 1 else FORMATS["f32"]
        writer.add_tensor(tensor.name, gguf.quantize(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("format", choices=FORMATS)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(argv)
    requantise(options.model, options.format, options.out)


if __name__ == "__main__":
    main()
