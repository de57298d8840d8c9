"""The bound on reasoning as the engine understands it: in tokens, not in tags."""

from hipfire.service.model_text import ModelText
from hipfire.wire.messages import SpanCap


def span_cap(n_tokens: int, text: ModelText, *, begins_inside: bool) -> SpanCap | None:
    """The cap of a family's reasoning. `begins_inside`: the prompt opens it."""
    family, encode = text.family, text.tokenizer.encode
    if family.tags is None:
        return None
    return SpanCap(
        max_tokens=n_tokens,
        open_ids=() if begins_inside else tuple(encode(family.tags.opener, parse_control=True)),
        close_ids=tuple(encode(family.tags.closer, parse_control=True)),
        forced_ids=tuple(encode(family.cap_end, parse_control=True)),
    )
