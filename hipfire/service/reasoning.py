"""What becomes of the wishes about reasoning, by the family of the model: mode, effort and cap, three separate things.

A wish that a family does not know is dropped, or taken for the nearest one that it knows; either is warned of.
"""

import logging
from collections.abc import Mapping

import attrs

from hipfire.service.events import ReasoningInForce
from hipfire.service.request import ReasoningWishes
from hipfire.text.dialects.family import Cap, Family, Mode

log = logging.getLogger("hipfire.service")

_BUDGETS = {"low": 512, "med": 2048, "high": 8192, "xhigh": 24576, "max": 32768, "uncapped": 0}


@attrs.frozen(kw_only=True)
class ReasoningPlan:
    """`arguments` are for the template. `in_force` None: nobody asked and there is nothing to tell."""

    arguments: Mapping[str, object]
    cap: int | None
    in_force: ReasoningInForce | None
    warnings: tuple[str, ...]
    keeps_thinking: bool

    @property
    def may_reason(self) -> bool:
        return self.in_force is not None and self.in_force.mode == "on"


def plan_reasoning(wishes: ReasoningWishes, family: Family, *, model: str) -> ReasoningPlan:
    """What is in force. Warnings are logged too."""
    planner = _Planner(wishes, family, model)
    plan = planner.plan() if family.mode is not Mode.NEVER else planner.drop_all()
    for warning in plan.warnings:
        log.warning("[WARN: INVALID CONFIG] %s", warning)
    return plan


class _Planner:
    def __init__(self, wishes: ReasoningWishes, family: Family, model: str) -> None:
        self._wishes = wishes
        self._family = family
        self._model = model
        self._warnings: list[str] = []

    def drop_all(self) -> ReasoningPlan:
        """For a model that does not reason."""
        wishes = self._wishes
        for fields in (wishes.modes, wishes.efforts, wishes.caps, wishes.budgets, wishes.preserves):
            for path, _ in fields:
                self._drop(path, f"{self._model} does not reason")
        in_force = ReasoningInForce(mode="off", effort=None, cap=None) if self._warnings else None
        return self._plan(arguments={}, cap=None, in_force=in_force)

    def plan(self) -> ReasoningPlan:
        family = self._family
        is_on = self._mode()
        effort = self._effort(is_on=is_on)
        cap = self._cap(is_on=is_on)
        arguments: dict[str, object] = {}
        if family.mode is not Mode.ALWAYS:
            arguments[family.mode_argument] = is_on
        if effort is not None:
            arguments[family.effort_argument] = effort
        for path, value in self._wishes.preserves:
            arguments[path.rpartition(".")[2]] = value
        return self._plan(
            arguments=arguments,
            cap=cap,
            in_force=ReasoningInForce(mode="on" if is_on else "off", effort=effort, cap=cap),
        )

    def _plan(
        self, *, arguments: Mapping[str, object], cap: int | None, in_force: ReasoningInForce | None
    ) -> ReasoningPlan:
        return ReasoningPlan(
            arguments=arguments,
            cap=cap,
            in_force=in_force,
            warnings=tuple(self._warnings),
            keeps_thinking=in_force is not None and any(value for _, value in self._wishes.preserves),
        )

    def _drop(self, path: str, why: str) -> None:
        self._warnings.append(f"{path}: dropped, {why}")

    def _mode(self) -> bool:
        """Off wins where fields disagree."""
        if self._family.mode is Mode.ALWAYS:
            for path, value in self._wishes.modes:
                if not value:
                    self._drop(path, f"{self._model} always reasons")
            return True
        if not self._wishes.modes:
            return self._family.mode is Mode.DEFAULT_ON
        return all(value for _, value in self._wishes.modes)

    def _effort(self, *, is_on: bool) -> str | None:
        effort = None
        for path, wish in self._wishes.efforts:
            if not is_on:
                self._drop(path, "reasoning is off")
            elif effort is not None:
                self._drop(path, "another field says it too")
            elif (known := self._family.efforts.get(wish)) is None:
                self._drop(path, f"{self._model} does not know {wish!r}")
            else:
                effort = known
                if known != wish:
                    self._warnings.append(f"{path}: {wish!r} is taken for {known!r}")
        return effort if effort is not None or not is_on else self._family.default_effort

    def _cap(self, *, is_on: bool) -> int | None:
        """The one in force: a number before a name."""
        cap = None
        for path, number in self._wishes.caps:
            if self._takes_cap(path, cap, is_on=is_on, accepted=(Cap.TOKENS, Cap.TOKENS_OR_NAME)):
                cap = number
        for path, name in self._wishes.budgets:
            if self._takes_cap(path, cap, is_on=is_on, accepted=(Cap.TOKENS_OR_NAME,)):
                cap = _BUDGETS[name]
        return cap or None

    def _takes_cap(self, path: str, cap: int | None, *, is_on: bool, accepted: tuple[Cap, ...]) -> bool:
        if not is_on:
            self._drop(path, "reasoning is off")
        elif self._family.cap not in accepted:
            self._drop(path, f"{self._model} does not take it")
        elif cap is not None:
            self._drop(path, "another field says it too")
        else:
            return True
        return False
