"""The Gemma 3 architecture, text only.

Blocks are normed before and after attention and the feed-forward block, which is gated by GELU; each head of Q and K
is normed; most layers see a sliding window, the others everything, each kind with a rotary base of its own; the
embedding is scaled by sqrt(n_embd) and also the output matrix. The file's norm weights are stored with their 1 added.
Sources: arXiv 2503.19786; llama.cpp for what a file leaves out: the pattern, the sliding layers' base, and the scale
of the 27B model's queries.
"""

import math

import attrs

from hipfire.models import blocks
from hipfire.models.model import Model
from hipfire.models.reader import Reader
from hipfire.models.rope import DEFAULT_BASE, plain_rotation, read_n_rot, read_rotation
from hipfire.program.operands import Buffer
from hipfire.program.program import Builder

# One layer in this many sees everything, the last of them.
_DEFAULT_PERIOD = 6
# The one size whose queries are scaled by the embedding's width a head, not by the head's own. No key tells it.
_N_LAYERS_27B = 62


def build(reader: Reader) -> Model:
    """The Program of a Gemma 3 checkpoint. Raises CorruptFile, UnsupportedFile, ShapeError."""
    reader.refuse("logit soft-capping", "attn_logit_softcapping", "final_logit_softcapping")
    n_layers = reader.layer_count()
    n_embd = reader.count("embedding_length")
    eps = reader.number("attention.layer_norm_rms_epsilon")
    n_ff = reader.counts("feed_forward_length", n_layers)
    attention = _read_attention(reader, n_layers, n_embd)
    n_rot = read_n_rot(reader, attention[0].head_dim)
    table = reader.table("token_embd.weight", n_embd)

    builder = Builder()
    x = builder.embed("embed", table, scale=math.sqrt(n_embd))
    everywhere = read_rotation(reader, n_rot).emit(builder, "rope")
    sliding = plain_rotation(n_rot, reader.positive("rope.freq_base_swa", DEFAULT_BASE)).emit(builder, "rope_sliding")
    for i, settings in enumerate(attention):
        angles = sliding if settings.window else everywhere
        x = _layer(builder, reader, f"blk.{i}", x, angles, settings, n_ff=n_ff[i], eps=eps)
    logits = blocks.output_head(builder, reader, x, table, eps=eps)
    return Model(
        architecture=reader.architecture,
        program=builder.finish(logits),
        n_vocab=table.shape[0],
        context_length=reader.count("context_length"),
        n_layers=n_layers,
    )


def _read_attention(reader: Reader, n_layers: int, n_embd: int) -> list[blocks.AttentionSettings]:
    window = reader.optional_count("attention.sliding_window")
    slides = reader.flags("attention.sliding_window_pattern", n_layers)
    if slides is None:
        period = reader.count("attention.sliding_window_pattern", _DEFAULT_PERIOD)
        slides = tuple(i % period < period - 1 for i in range(n_layers))
    layers = blocks.read_attention(reader, n_layers)
    if n_layers == _N_LAYERS_27B and not reader.number("attention.scale", 0.0):
        layers = tuple(attrs.evolve(layer, scale=(n_embd / layer.n_heads) ** -0.5) for layer in layers)
    return [attrs.evolve(layer, window=window if slide else None) for layer, slide in zip(layers, slides, strict=True)]


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
    n_embd, head_dim = x.width, attention.head_dim

    def norm(name: str, x: Buffer, residual: Buffer | None = None) -> Buffer:
        weight = reader.weight(f"{layer}.{name}.weight", n_embd)
        return builder.rms_norm(f"{layer}.{name}", x, weight, eps=eps, residual=residual)

    norms = blocks.HeadNorms(
        q=reader.weight(f"{layer}.attn_q_norm.weight", head_dim),
        k=reader.weight(f"{layer}.attn_k_norm.weight", head_dim),
        eps=eps,
    )
    attended = blocks.attended_heads(builder, reader, layer, norm("attn_norm", x), angles, attention, norms=norms)
    attended = blocks.projection(builder, reader, layer, "attn_output", attended, n_embd)
    x = norm("post_attention_norm", attended, residual=x)
    gated = blocks.gated_feed_forward(builder, reader, layer, norm("ffn_norm", x), n_ff, "gelu_tanh")
    fed = blocks.projection(builder, reader, layer, "ffn_down", gated, n_embd)
    return norm("post_ffw_norm", fed, residual=x)
