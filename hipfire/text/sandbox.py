"""Jinja with a budget: a template from a model file, which may be hostile, can neither reach into the process nor
use it up.

Beyond Jinja's immutable sandbox, every operation of a template is charged to the `RenderBudget` of its rendering.
The compiler is made to emit calls for what Jinja has no hook for (loops, `~`, comparisons, literals, slices, output);
filters, tests and methods are those listed here and in `bounded_filters`, each known to be bounded. Knows no chat.
"""

# ruff: noqa: N802  (Jinja names a visitor's methods after its nodes)

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame, operators
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from hipfire.errors import TemplateError
from hipfire.text.bounded_filters import (
    FILTERS,
    HTML_GROWTH,
    REPR_GROWTH,
    TESTS,
    BudgetedContext,
    charge_format,
    charge_join,
    charge_replace,
    charge_strip,
    charge_text,
    is_markup,
)
from hipfire.text.render_budget import RenderBudget, is_collection

_MAX_BITS = 4096

# The methods of a client's values that templates may call.
_METHODS: tuple[tuple[type, frozenset[str]], ...] = (
    (
        str,
        frozenset(
            {
                "capitalize", "casefold", "count", "endswith", "find", "format", "index", "isalnum", "isalpha",
                "isascii", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper", "join",
                "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind", "rindex",
                "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title",
                "upper",
            }
        ),
    ),
    (dict, frozenset({"get", "items", "keys", "values", "copy"})),
    (list, frozenset({"count", "index", "copy"})),
    (tuple, frozenset({"count", "index"})),
    (int, frozenset()),
    (float, frozenset()),
)  # fmt: skip

# In a field of str.format: a width of five digits, or one taken from the arguments.
_WIDE_FIELD = re.compile(r"\{[^{}:]*:[^{}]*(?:\{|\d{5})")


class _OpaqueNamespace(Namespace):
    """A namespace whose text does not show what it holds, which may be without end."""

    def __repr__(self) -> str:
        return "<Namespace>"


class _GenerationTag(Extension):
    """Hugging Face's `{% generation %}`, which marks what an assistant said: its body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  (Jinja declares it a mutable class attribute)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _BudgetedCode(CodeGenerator):
    """Emits a call of the environment wherever a template makes or goes through something."""

    def visit_For(self, node: nodes.For, frame: Frame) -> None:
        each = nodes.EnvironmentAttribute("each", lineno=node.lineno)
        node.iter = nodes.Call(each, [nodes.ContextReference(), node.iter], [], None, None, lineno=node.lineno)
        super().visit_For(node, frame)

    def visit_Output(self, node: nodes.Output, frame: Frame) -> None:
        # The template's own text passes `finalize` only as an expression.
        node.nodes = [
            nodes.Const(part.data, lineno=part.lineno) if isinstance(part, nodes.TemplateData) else part
            for part in node.nodes
        ]
        super().visit_Output(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.joined(context, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def visit_Compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.write("(")
        self._within("compared", self.visit, node.expr, frame)
        for operand in node.ops:
            self.write(f" {operators[operand.op]} ")
            method = "searched" if operand.op in {"in", "notin"} else "compared"
            self._within(method, self.visit, operand.expr, frame)
        self.write(")")

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:
        if isinstance(node.arg, nodes.Slice):
            self._within("sliced", super().visit_Getitem, node, frame)
            return
        self.write("environment.subscripted(context, ")
        self.visit(node.node, frame)
        self.write(", ")
        self.visit(node.arg, frame)
        self.write(")")

    def visit_List(self, node: nodes.List, frame: Frame) -> None:
        self._within("made", super().visit_List, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:
        self._within("made", super().visit_Dict, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:
        if node.ctx == "load":
            self._within("made", super().visit_Tuple, node, frame)
        else:
            super().visit_Tuple(node, frame)

    def visit_ScopedEvalContextModifier(self, node: nodes.ScopedEvalContextModifier, _frame: Frame) -> None:
        self.fail("autoescape is for HTML, not for prompts", node.lineno)

    def signature(self, node: Any, frame: Frame, extra_kwargs: Mapping[str, Any] | None = None) -> None:
        if node.dyn_args or node.dyn_kwargs:
            self.fail("arguments from a list (*) or a mapping (**) are not supported", node.lineno)
        super().signature(node, frame, extra_kwargs)

    def _within(self, method: str, visit: Callable[[Any, Frame], None], node: nodes.Node, frame: Frame) -> None:
        """Emits what `visit` emits for `node`, passed through a method of the environment."""
        self.write(f"environment.{method}(context, ")
        visit(node, frame)
        self.write(")")


@pass_context
def _written(context: BudgetedContext, value: object) -> str:
    """The text that `{{ value }}` writes."""
    text = _text(context, value)
    context.budget.spend_characters(len(text))
    return text


def _text(context: BudgetedContext, value: object) -> str:
    if is_collection(value):
        charge_text(context.budget, value)
    return str(value)


class BudgetedEnvironment(ImmutableSandboxedEnvironment):
    """Compiles templates with Hugging Face's settings; `BudgetedContext.BUDGET` must be among what they are given."""

    code_generator_class = _BudgetedCode
    context_class = BudgetedContext
    intercepted_binops = frozenset({"+", "-", "*", "**", "%"})

    def __init__(self) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[LoopControlExtension, _GenerationTag],
            finalize=_written,
            # What is computed while compiling has no budget yet.
            optimized=False,
        )
        self.filters = dict(FILTERS)
        self.tests = dict(TESTS)
        self.globals["namespace"] = _OpaqueNamespace
        del self.globals["lipsum"]

    # What the compiled code calls.

    def each(self, context: BudgetedContext, values: Iterable[object]) -> Iterator[object]:
        return context.budget.each(values)

    def joined(self, context: BudgetedContext, parts: tuple[object, ...]) -> str:
        texts = [_text(context, part) for part in parts]
        context.budget.spend_characters(sum(map(len, texts)))
        return "".join(texts)

    def made(self, context: BudgetedContext, value: object) -> object:
        context.budget.keep(value)
        return value

    def sliced(self, context: BudgetedContext, value: object) -> object:
        # Never deeper than what it was cut from, so its own length is enough.
        if isinstance(value, str):
            context.budget.spend_characters(len(value))
        elif isinstance(value, list | tuple):
            context.budget.spend_items(len(value))
        return value

    def subscripted(self, context: BudgetedContext, value: object, key: Any) -> object:
        # Where there is no such key, Jinja may write it into a message.
        self.compared(context, key)
        return self.getitem(value, key)

    def compared(self, context: BudgetedContext, value: object) -> object:
        if is_collection(value):
            charge_text(context.budget, value)
        else:
            context.budget.tick(len(value) if isinstance(value, str) else 0)
        return value

    def searched(self, context: BudgetedContext, value: object) -> object:
        # A mapping is not gone through to find a key.
        return value if isinstance(value, dict) else self.compared(context, value)

    # Jinja's own hooks.

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        budget = context.budget
        budget.tick()
        if operator in {"*", "**"}:
            _charge_product(budget, operator, left, right)
        elif operator == "%" and isinstance(left, str):
            charge_format(budget, left, right)
        elif operator == "-" and is_collection(left):
            raise TemplateError("the chat template subtracts collections")
        elif is_markup(left) or is_markup(right):
            charge_text(budget, left, growth=HTML_GROWTH)
            charge_text(budget, right, growth=HTML_GROWTH)
        result = super().call_binop(context, operator, left, right)
        budget.keep(result)
        return result

    # The odd names are Jinja's: a template may pass arguments of any name.
    def call(__self, __context: Any, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805, PYI063
        budget = __context.budget
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            budget.tick(len(owner))
            args = _charge_method(budget, owner, __obj.__name__, args)
        elif isinstance(owner, list | tuple | LoopContext):
            # They compare the arguments with what they have.
            charge_text(budget, owner)
            charge_text(budget, args)
        elif isinstance(__obj, LoopContext) and args:
            args = (budget.each(args[0]), *args[1:])
        budget.tick()
        result = super().call(__context, __obj, *args, **kwargs)
        # What a mapping holds was there before.
        if not isinstance(owner, dict):
            budget.keep(result)
        return result

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        for kind, names in _METHODS:
            if isinstance(obj, kind):
                return attr in names
        return super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        sandboxed = super().wrap_str_format(value)
        if sandboxed is None:
            return None
        pattern = value.__self__

        @pass_context
        def bounded(context: BudgetedContext, *args: object, **kwargs: object) -> str:
            if _WIDE_FIELD.search(pattern):
                raise TemplateError("the chat template formats with too large a width")
            context.budget.read((args, kwargs), growth=REPR_GROWTH * pattern.count("{"))
            return sandboxed(*args, **kwargs)

        return bounded


def _charge_product(budget: RenderBudget, operator: str, left: object, right: object) -> None:
    """For `left * right` and `left ** right`, of which small values make large ones."""
    if isinstance(left, int) and isinstance(right, int):
        n_bits = left.bit_length() * max(right, 0) if operator == "**" else left.bit_length() + right.bit_length()
        if n_bits > _MAX_BITS:
            raise TemplateError(f"the chat template computes with numbers of more than {_MAX_BITS} bits")
        return
    for repeated, times in ((left, right), (right, left)):
        if isinstance(times, int) and isinstance(repeated, str):
            budget.spend_characters(len(repeated) * max(times, 0))
        elif isinstance(times, int) and isinstance(repeated, list | tuple):
            budget.spend_items(len(repeated) * max(times, 0))


def _charge_method(budget: RenderBudget, text: str, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """For a method of a string whose result may be larger than the string. Returns the arguments to call it with."""
    match name:
        case "replace" if len(args) > 1:
            charge_replace(budget, text, *args)
        case "strip" | "lstrip" | "rstrip":
            charge_strip(budget, text, *args)
        case "join" if args:
            parts = list(budget.each(args[0]))
            charge_join(budget, parts, text)
            return (parts, *args[1:])
        case "split" | "rsplit" if args and isinstance(args[0], str) and args[0]:
            budget.spend_items(text.count(args[0]))
        case "split" | "rsplit" | "splitlines":
            budget.spend_items(len(text) // 2)
    return args
