"""The Llama architecture: SmolLM2, Llama 2 and 3, Mistral, and others that were converted under its name.

Pre-norm blocks of grouped-query attention with rotary positions and a SiLU-gated feed-forward block; every bias is
optional. A `sliding_window`, with which Mistral 7B 0.1 was trained, holds for all layers; llama.cpp's converter
leaves it out, and then attention is over everything.
Sources: arXiv 2302.13971, 2310.06825.
"""

import attrs

from hipfire.models import blocks
from hipfire.models.model import Model
from hipfire.models.reader import Reader
from hipfire.models.rope import read_n_rot, read_rotation
from hipfire.program.operands import Buffer
from hipfire.program.program import Builder


def build(reader: Reader) -> Model:
    """The Program of a Llama checkpoint. Raises CorruptFile, UnsupportedFile, ShapeError."""
    reader.refuse("mixture of experts", "expert_count")
    n_layers = reader.layer_count()
    eps = reader.number("attention.layer_norm_rms_epsilon")
    n_ff = reader.counts("feed_forward_length", n_layers)
    window = reader.optional_count("attention.sliding_window")
    attention = [attrs.evolve(settings, window=window) for settings in blocks.read_attention(reader, n_layers)]
    rotation = read_rotation(reader, read_n_rot(reader, attention[0].head_dim))
    table = reader.table("token_embd.weight", reader.count("embedding_length"))

    builder = Builder()
    x = builder.embed("embed", table)
    angles = rotation.emit(builder, "rope")
    for i in range(n_layers):
        x = _layer(builder, reader, f"blk.{i}", x, angles, attention[i], n_ff=n_ff[i], eps=eps)
    logits = blocks.output_head(builder, reader, x, table, eps=eps)
    return Model(
        architecture=reader.architecture,
        program=builder.finish(logits),
        n_vocab=table.shape[0],
        context_length=reader.count("context_length"),
        n_layers=n_layers,
    )


def _layer(
    builder: Builder,
    reader: Reader,
    layer: str,
    x: Buffer,
    angles: Buffer,
    attention: blocks.AttentionSettings,
    *,
    n_ff: int,
    eps: float,
) -> Buffer:
    n_embd = x.width
    normed = builder.rms_norm(f"{layer}.attn_norm", x, reader.weight(f"{layer}.attn_norm.weight", n_embd), eps=eps)
    attended = blocks.attended_heads(builder, reader, layer, normed, angles, attention)
    x = blocks.projection(builder, reader, layer, "attn_output", attended, n_embd, residual=x)
    normed = builder.rms_norm(f"{layer}.ffn_norm", x, reader.weight(f"{layer}.ffn_norm.weight", n_embd), eps=eps)
    gated = blocks.gated_feed_forward(builder, reader, layer, normed, n_ff, "silu")
    return blocks.projection(builder, reader, layer, "ffn_down", gated, n_embd, residual=x)
