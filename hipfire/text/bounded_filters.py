"""The filters and tests that a chat template may use: Jinja's own, each charged to the rendering's budget.

Left out of Jinja's are those whose work is out of proportion to what they are given (`sum` of lists, `wordwrap`,
`striptags`, `urlize`, `pprint`, …), that look into objects (`attr`), or that are random. Knows no chat.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, cast

from jinja2 import filters, pass_context, tests
from jinja2.runtime import Context

from hipfire.errors import TemplateError
from hipfire.text.render_budget import RenderBudget, is_collection

Function = Callable[..., Any]
Charge = Callable[..., None]

_JINJA_FILTERS = cast(Mapping[str, Function], filters.FILTERS)
_JINJA_TESTS = cast(Mapping[str, Function], tests.TESTS)

# What a text may grow by where characters are written as escapes: \U0001f600 in Python's spelling of a list, \u0000
# in JSON, &#34; in HTML, %F0%9F%98%80 in a URL.
REPR_GROWTH = 10
_JSON_GROWTH = 6
HTML_GROWTH = 5
_URL_GROWTH = 12

_MAX_ARGUMENT = 100_000
_MAX_JSON_SPACING = 16

_MAX_STRIPPED = 100

# A width or a precision of five digits, or one taken from the arguments; or a name in which parentheses hide that.
_WIDE_FORMAT = re.compile(r"%(?:\([^()]*\))?[-+ #0.\d]*(?:\*|\d{5})|%\([^()]*\(")


class BudgetedContext(Context):
    """What a template's code runs in. Every rendering is given its own budget under the name `BUDGET`."""

    # Not a name that a template can spell.
    BUDGET = "render budget"

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget: RenderBudget = self.parent[self.BUDGET]


def is_markup(value: object) -> bool:
    """Whether text that is joined to `value` is escaped for HTML, as it is to what `safe` gives."""
    return hasattr(value, "__html__")


def charge_text(budget: RenderBudget, value: object, *, growth: int = 1) -> None:
    """For an operation that reads the text of `value`; a collection's is Python's spelling of it."""
    budget.read(value, growth=REPR_GROWTH if is_collection(value) else growth)


def charge_replace(budget: RenderBudget, text: object, old: object, new: object, *_: object) -> None:
    for part in (text, old, new):
        charge_text(budget, part)
    budget.spend_characters(str(text).count(str(old)) * len(str(new)))


def charge_join(budget: RenderBudget, parts: list[object], separator: str) -> None:
    growth = HTML_GROWTH if is_markup(separator) else 1
    for part in parts:
        charge_text(budget, part, growth=growth)
    budget.spend_characters(len(parts) * len(separator))


def charge_strip(budget: RenderBudget, text: object, characters: object = None, *_: object) -> None:
    """Each character of the text is looked for among those to strip."""
    _charge_reading(budget, text)
    if isinstance(characters, str) and len(characters) > _MAX_STRIPPED:
        raise TemplateError(f"the chat template strips {len(characters)} characters")


def charge_format(budget: RenderBudget, pattern: str, values: object) -> None:
    """For `pattern % values`, where the pattern may want each value again and again."""
    if _WIDE_FORMAT.search(pattern):
        raise TemplateError("the chat template formats with too large a width")
    budget.read(values, growth=REPR_GROWTH * pattern.count("%"))


def _charge_nothing(_budget: RenderBudget, _value: object, *_: object, **__: object) -> None:
    """For what does not look at text, or makes no more of it than it was given."""


def _charge_reading(budget: RenderBudget, value: object, *_: object, **__: object) -> None:
    if is_collection(value):
        charge_text(budget, value)


def _charge_iteration(budget: RenderBudget, value: object, *_: object, **__: object) -> None:
    # A text is gone through character by character, each an item.
    if isinstance(value, str):
        budget.spend_items(len(value))


def _charge_sorting(budget: RenderBudget, value: object, *_: object, **__: object) -> None:
    _charge_iteration(budget, value)
    _charge_reading(budget, value)


def _charge_comparison(budget: RenderBudget, value: object, *others: object) -> None:
    for compared in (value, *others):
        _charge_reading(budget, compared)


def _charge_html(budget: RenderBudget, value: object) -> None:
    charge_text(budget, value, growth=HTML_GROWTH)


def _charge_url(budget: RenderBudget, value: object) -> None:
    charge_text(budget, value, growth=_URL_GROWTH)


def _charge_indent(budget: RenderBudget, text: object, width: int | str = 4, *_: object, **__: object) -> None:
    charge_text(budget, text)
    budget.spend_characters((str(text).count("\n") + 1) * (len(width) if isinstance(width, str) else width))


@pass_context
def _join(context: BudgetedContext, value: Iterable[object], d: str = "", attribute: str | int | None = None) -> object:
    parts = list(context.budget.each(value))
    charge_join(context.budget, parts, d)
    return _JINJA_FILTERS["join"](context.eval_ctx, parts, d, attribute)


@pass_context
def _format(context: BudgetedContext, value: object, *args: object, **kwargs: object) -> object:
    charge_text(context.budget, value)
    charge_format(context.budget, str(value), kwargs or args)
    return _JINJA_FILTERS["format"](value, *args, **kwargs)


@pass_context
def to_json(
    context: BudgetedContext,
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Hugging Face's `tojson`: plain JSON, without the escapes that Jinja adds for HTML."""
    spacing = [len(indent) if isinstance(indent, str) else indent or 0, *map(len, separators or ())]
    if max(spacing) > _MAX_JSON_SPACING:
        raise TemplateError("the chat template writes JSON with too much space")
    if isinstance(value, Iterator):
        # Where llama.cpp's templates write what `map` or `select` gave.
        value = list(context.budget.each(value))
    context.budget.read(value, growth=_JSON_GROWTH)
    encoder = json.JSONEncoder(ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    if indent is None:
        return encoder.encode(value)
    chunks = []
    for chunk in encoder.iterencode(value):
        context.budget.spend_characters(len(chunk))
        chunks.append(chunk)
    return "".join(chunks)


def _bounded(inner: Function, charge: Charge) -> Function:
    """`inner` with its work charged ahead, its result afterwards, and no argument that asks for much of anything."""
    # How Jinja's own filters say what they want ahead of their arguments (jinja2.utils.pass_context and its like).
    passed = getattr(inner, "jinja_pass_arg", None)
    wants = passed.name if passed is not None else "nothing"

    @pass_context
    def bounded(context: BudgetedContext, value: object, *args: object, **kwargs: object) -> object:
        budget = context.budget
        budget.tick(len(value) if isinstance(value, str) else 0)
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, int) and abs(argument) > _MAX_ARGUMENT:
                raise TemplateError(f"the chat template passes {argument} to a filter")
        charge(budget, value, *args, **kwargs)
        match wants:
            case "context":
                result = inner(context, value, *args, **kwargs)
            case "eval_context":
                result = inner(context.eval_ctx, value, *args, **kwargs)
            case "environment":
                result = inner(context.environment, value, *args, **kwargs)
            case _:
                result = inner(value, *args, **kwargs)
        if isinstance(result, Iterator):
            return budget.each(result)
        budget.keep(result)
        return result

    return bounded


def _plain(functions: Mapping[str, Function], names: str) -> dict[str, Function]:
    return {name: functions[name] for name in names.split()}


def _table(functions: Mapping[str, Function], charges: Mapping[Charge, str]) -> dict[str, Function]:
    return {name: _bounded(functions[name], charge) for charge, names in charges.items() for name in names.split()}


FILTERS: Mapping[str, Function] = {
    **_table(
        _JINJA_FILTERS,
        {
            _charge_nothing: "length count first last map select selectattr reject rejectattr items default d reverse "
            "int float abs round",
            _charge_iteration: "list batch slice",
            _charge_sorting: "sort unique groupby dictsort min max",
            _charge_reading: "lower upper capitalize title string safe center truncate wordcount",
            charge_strip: "trim",
            charge_replace: "replace",
            _charge_indent: "indent",
            _charge_html: "e escape forceescape",
            _charge_url: "urlencode",
        },
    ),
    "join": _bounded(_join, _charge_nothing),
    "format": _bounded(_format, _charge_nothing),
    "tojson": _bounded(to_json, _charge_nothing),
}

TESTS: Mapping[str, Function] = {
    **_plain(
        _JINJA_TESTS,
        "defined undefined none boolean true false integer float number string mapping iterable sequence callable "
        "sameas odd even divisibleby filter test",
    ),
    **_table(
        _JINJA_TESTS,
        {_charge_comparison: "in eq == equalto ne != lt < lessthan gt > greaterthan le <= ge >= lower upper"},
    ),
}
