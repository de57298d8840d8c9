"""The wishes about reasoning that the settings add to a request which leaves them open. Knows no family of models."""

import attrs

from hipfire.config.schema import BUILTIN, Settings
from hipfire.service.request import ReasoningWishes


def with_defaults(wishes: ReasoningWishes, settings: Settings) -> ReasoningWishes:
    """The wishes in force: for each of mode, effort and cap the request's, else what was set.

    What is built in is no wish: there the family's own way holds. A cap of 0 wishes for none, and so keeps a set one
    out. A request that turns reasoning off leaves nothing for the set effort and cap to be about.
    """
    reasoning = settings.reasoning
    modes, efforts, caps, budgets = wishes.modes, wishes.efforts, wishes.caps, wishes.budgets
    is_off = any(not mode for _, mode in modes)
    if not modes and _is_set("thinking", settings):
        modes = ((_path("thinking"), reasoning.thinking == "on"),)
    if not efforts and not is_off and reasoning.reasoning_effort != "auto":
        efforts = ((_path("reasoning_effort"), reasoning.reasoning_effort),)
    if not caps and not budgets and not is_off:
        caps = ((_path("max_think_tokens"), reasoning.max_think_tokens),)
        if reasoning.thinking_budget is not None:
            budgets = ((_path("thinking_budget"), reasoning.thinking_budget),)
    return attrs.evolve(
        wishes, modes=modes, efforts=efforts, caps=tuple(cap for cap in caps if cap[1] > 0), budgets=budgets
    )


def _is_set(key: str, settings: Settings) -> bool:
    return settings.sourced(key).source != BUILTIN


def _path(key: str) -> str:
    """What a warning calls it, so that nobody looks for it in the request."""
    return f"{key} (a setting)"
