"""The one list of element types and quantised formats: block size, bytes, and what the bytes mean.

The formats are ggml's; the layout of each is in its `dequantize` function here, which is the reference that the
compiled kernels are tested against.
"""

import attrs


@attrs.frozen(kw_only=True)
class DType:
    """An element type or a block-quantised format.

    `block` consecutive elements of a row are stored together in `block_nbytes` bytes. `ggml_type` is the number
    that GGUF files use.
    """

    name: str
    ggml_type: int
    block: int
    block_nbytes: int

    def nbytes(self, n_elements: int) -> int:
        """Bytes of `n_elements`, which must be a multiple of `block`."""
        n_blocks, rest = divmod(n_elements, self.block)
        if rest:
            raise ValueError(f"{n_elements} elements are no whole number of {self.name} blocks of {self.block}")
        return n_blocks * self.block_nbytes


DTYPES = {
    row.name: row
    for row in (
        DType(name="f32", ggml_type=0, block=1, block_nbytes=4),
        DType(name="f16", ggml_type=1, block=1, block_nbytes=2),
        DType(name="bf16", ggml_type=30, block=1, block_nbytes=2),
        DType(name="q4_0", ggml_type=2, block=32, block_nbytes=18),
        DType(name="q4_1", ggml_type=3, block=32, block_nbytes=20),
        DType(name="q5_0", ggml_type=6, block=32, block_nbytes=22),
        DType(name="q5_1", ggml_type=7, block=32, block_nbytes=24),
        DType(name="q8_0", ggml_type=8, block=32, block_nbytes=34),
        DType(name="q2_k", ggml_type=10, block=256, block_nbytes=84),
        DType(name="q3_k", ggml_type=11, block=256, block_nbytes=110),
        DType(name="q4_k", ggml_type=12, block=256, block_nbytes=144),
        DType(name="q5_k", ggml_type=13, block=256, block_nbytes=176),
        DType(name="q6_k", ggml_type=14, block=256, block_nbytes=210),
    )
}
BY_GGML_TYPE = {row.ggml_type: row for row in DTYPES.values()}
