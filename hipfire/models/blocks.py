"""Parts that architectures share: self-attention, the gated feed-forward block, the output head.

Tensor names are the canonical ones; `layer` is their prefix (`blk.3`), and the name of what a layer computes starts
with it too. Knows no architecture.
"""

import attrs

from hipfire.models.reader import Reader
from hipfire.program.operands import Buffer, Weight
from hipfire.program.ops import Activation
from hipfire.program.program import Builder


@attrs.frozen(kw_only=True)
class AttentionSettings:
    """One layer's attention. `window`: only the last that many positions are seen; None: all."""

    n_heads: int
    n_kv_heads: int
    head_dim: int
    scale: float
    interleaved: bool
    window: int | None = None


def read_attention(reader: Reader, n_layers: int) -> tuple[AttentionSettings, ...]:
    """Each layer's attention, without windows. Head counts may differ from layer to layer, a head's width does not."""
    n_embd = reader.count("embedding_length")
    n_heads = reader.counts("attention.head_count", n_layers)
    n_kv_heads = reader.counts("attention.head_count_kv", n_layers, n_heads)
    head_dim = reader.optional_count("attention.key_length")
    if head_dim is None:
        head_dim, rest = divmod(n_embd, n_heads[0])
        if rest or not head_dim:
            raise reader.corrupt(f"{n_heads[0]} heads do not divide an embedding_length of {n_embd}")
    value_dim = reader.count("attention.value_length", head_dim)
    if value_dim != head_dim:
        raise reader.unsupported(f"attention.value_length {value_dim} is not attention.key_length {head_dim}")
    # Before anything of a head's size is made: the file has to have heads of that size.
    reader.weight("blk.0.attn_q.weight", n_heads[0] * head_dim, n_embd)
    scale = reader.number("attention.scale", 0.0) or head_dim**-0.5
    return tuple(
        AttentionSettings(
            n_heads=n, n_kv_heads=n_kv, head_dim=head_dim, scale=scale, interleaved=reader.rope_interleaved
        )
        for n, n_kv in zip(n_heads, n_kv_heads, strict=True)
    )


@attrs.frozen(kw_only=True, eq=False)
class HeadNorms:
    """RmsNorm weights (head_dim,) for each head of Q and of K."""

    q: Weight
    k: Weight
    eps: float


def attended_heads(
    builder: Builder,
    reader: Reader,
    layer: str,
    x: Buffer,
    angles: Buffer,
    settings: AttentionSettings,
    *,
    norms: HeadNorms | None = None,
) -> Buffer:
    """Self-attention up to, not with, the output projection: [n_tokens, n_heads * head_dim]."""
    n_kv_heads, head_dim = settings.n_kv_heads, settings.head_dim
    heads = {"attn_q": settings.n_heads, "attn_k": n_kv_heads, "attn_v": n_kv_heads}
    weights, biases = [], []
    for part, n_heads in heads.items():
        weights.append(reader.weight(f"{layer}.{part}.weight", n_heads * head_dim, x.width))
        biases.append(reader.optional(f"{layer}.{part}.bias", n_heads * head_dim))
    qkv = builder.linear(f"{layer}.qkv", x, weights, biases=biases)
    keys = builder.kv_state(f"{layer}.keys", n_kv_heads=n_kv_heads, head_dim=head_dim)
    values = builder.kv_state(f"{layer}.values", n_kv_heads=n_kv_heads, head_dim=head_dim)
    q = builder.rope_store(
        f"{layer}.q",
        qkv,
        angles,
        keys=keys,
        values=values,
        n_heads=settings.n_heads,
        interleaved=settings.interleaved,
        q_norm=norms.q if norms else None,
        k_norm=norms.k if norms else None,
        eps=norms.eps if norms else 0.0,
    )
    return builder.attention(
        f"{layer}.attended",
        q,
        keys=keys,
        values=values,
        n_heads=settings.n_heads,
        scale=settings.scale,
        window=settings.window,
    )


def projection(
    builder: Builder, reader: Reader, layer: str, part: str, x: Buffer, n_out: int, *, residual: Buffer | None = None
) -> Buffer:
    """The product of x and `{layer}.{part}.weight` (n_out, width of x), with its bias where the file has one."""
    weight = reader.weight(f"{layer}.{part}.weight", n_out, x.width)
    bias = reader.optional(f"{layer}.{part}.bias", n_out)
    return builder.linear(f"{layer}.{part}", x, [weight], biases=[bias], residual=residual)


def gated_feed_forward(
    builder: Builder, reader: Reader, layer: str, x: Buffer, n_ff: int, activation: Activation
) -> Buffer:
    """activation(gate(x)) * up(x): [n_tokens, n_ff], up to, not with, the down projection."""
    parts = ("ffn_gate", "ffn_up")
    gate_up = builder.linear(
        f"{layer}.gate_up",
        x,
        [reader.weight(f"{layer}.{part}.weight", n_ff, x.width) for part in parts],
        biases=[reader.optional(f"{layer}.{part}.bias", n_ff) for part in parts],
    )
    return builder.gated(f"{layer}.gated", gate_up, activation=activation)


def output_head(builder: Builder, reader: Reader, x: Buffer, table: Weight, *, eps: float) -> Buffer:
    """Logits of the rows wanted: the final norm, then `output.weight`, or the embedding table where that is absent."""
    last = builder.gather_outputs("last", x)
    normed = builder.rms_norm("output_norm", last, reader.weight("output_norm.weight", x.width), eps=eps)
    return builder.linear("logits", normed, [reader.optional("output.weight", *table.shape) or table])
