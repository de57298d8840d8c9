"""A model's chat template: a conversation in, the prompt's text out, as Hugging Face's `apply_chat_template` does.

Knows no tokens; `prompt` turns what it renders into them.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NoReturn, TypeVar, cast

import jinja2

from hipfire.errors import TemplateError
from hipfire.text.bounded_filters import BudgetedContext, charge_text
from hipfire.text.render_budget import RenderBudget, RenderLimits
from hipfire.text.sandbox import BudgetedEnvironment
from hipfire.text.template_literals import Rewrite, rewrite_literals

Other = TypeVar("Other")
Prepared = TypeVar("Prepared")

_MAX_SOURCE = 256 * 1024
_MAX_DATE_FORMAT = 100
_MAX_REASON = 1000

# What a template's code can raise: it is compiled to Python, and runs on what a client sent.
_FAILURES = (
    jinja2.TemplateError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)


def _local_time() -> datetime:
    return datetime.now().astimezone()


class ChatTemplate:
    """A compiled chat template. Rendering has no side effects, and `limits` bound what it may take.

    `bos_token`, `eos_token`: the texts of those tokens, which templates write. `now` is what `strftime_now` tells.
    `rewrite`, if any, changes what the template itself writes, those two included.
    Raises TemplateError if `source` is not a template.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str,
        eos_token: str,
        limits: RenderLimits | None = None,
        now: Callable[[], datetime] = _local_time,
        clock: Callable[[], float] = time.thread_time,
        rewrite: Rewrite | None = None,
    ) -> None:
        if len(source) > _MAX_SOURCE:
            raise TemplateError(f"the chat template has {len(source)} characters; at most {_MAX_SOURCE} are allowed")
        self._source = source
        self._bos_token = bos_token
        self._eos_token = eos_token
        self._limits = limits or RenderLimits()
        self._now = now
        self._clock = clock
        self._prepared: tuple[object, object] | None = None
        self._variables = {"bos_token": bos_token, "eos_token": eos_token}
        if rewrite is not None:
            self._variables = {name: rewrite.text(text) for name, text in self._variables.items()}
        environment = BudgetedEnvironment()
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = self._strftime_now
        try:
            tree = environment.parse(source)
            if rewrite is not None:
                rewrite_literals(tree, rewrite)
            self._template = environment.from_string(tree)
        except _FAILURES as error:
            raise TemplateError(f"the chat template is not valid: {_reason(error)}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, object]],
        /,
        *,
        tools: Sequence[Mapping[str, object]] | None = None,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """The prompt for a conversation. `kwargs` are variables of the template (`enable_thinking`, …).

        Absent tools are left undefined: some templates ask whether they are defined and then use them.
        Raises TemplateError where the template refuses the conversation, fails, or does too much.
        """
        variables: dict[str, object] = {
            **self._variables,
            **kwargs,
            "messages": messages,
            "add_generation_prompt": add_generation_prompt,
            BudgetedContext.BUDGET: RenderBudget(self._limits, self._clock, n_messages=len(messages)),
        }
        if tools is not None:
            variables["tools"] = tools
        try:
            return self._template.render(variables)
        except _FAILURES as error:
            raise TemplateError(f"the chat template failed: {_reason(error)}") from error

    def rewritten(self, rewrite: Rewrite) -> "ChatTemplate":
        """The same template, with what it writes itself changed."""
        return ChatTemplate(
            self._source,
            bos_token=self._bos_token,
            eos_token=self._eos_token,
            limits=self._limits,
            now=self._now,
            clock=self._clock,
            rewrite=rewrite,
        )

    def prepared_for(self, other: Other, prepare: "Callable[[ChatTemplate, Other], Prepared]") -> Prepared:
        """`prepare(self, other)`, which is done once as long as `other` stays the same.

        A template is used with one tokenizer, and compiling it for that takes long beside rendering.
        """
        if self._prepared is None or self._prepared[0] is not other:
            self._prepared = (other, prepare(self, other))
        return cast(Prepared, self._prepared[1])

    def _strftime_now(self, format: str) -> str:  # noqa: A002  (Hugging Face's name for it)
        if len(format) > _MAX_DATE_FORMAT:
            raise TemplateError(f"the chat template wants a date by a format of {len(format)} characters")
        return self._now().strftime(format)


@jinja2.pass_context
def _raise_exception(context: BudgetedContext, message: object) -> NoReturn:
    """What templates call to refuse a conversation."""
    charge_text(context.budget, message)
    raise TemplateError(str(message)[:_MAX_REASON])


def _reason(error: Exception) -> str:
    text = str(error)[:_MAX_REASON]
    return text if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {text}"
