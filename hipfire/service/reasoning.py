"""What becomes of the fields that ask for reasoning. Models without a markup for it are all that this build serves."""

import logging
from collections.abc import Sequence

from hipfire.errors import Unsupported

log = logging.getLogger("hipfire.service")


def drop_wishes(wishes: Sequence[str], *, model: str, thinks: bool) -> tuple[str, ...]:
    """Warnings, one for each field that is dropped since the model cannot reason. They are logged too.

    Raises Unsupported for a model that can: its reasoning is not told apart from its answer yet.
    """
    if wishes and thinks:
        raise Unsupported(f"{wishes[0]}: control of reasoning is not supported by this build", param=wishes[0])
    warnings = tuple(f"{wish}: dropped, {model} does not reason" for wish in wishes)
    for warning in warnings:
        log.warning("[WARN: INVALID CONFIG] %s", warning)
    return warnings
