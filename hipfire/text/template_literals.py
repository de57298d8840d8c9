"""Rewrites the texts that a template itself writes, and leaves alone those that it only looks for.

A literal is looked for where it is compared, tested, used as a key, or handed to a method that searches. Anything
else may end up in the output. Knows no tokens.
"""

# ruff: noqa: N802  (Jinja names a visitor's methods after its nodes)

from collections.abc import Callable

import attrs
from jinja2 import nodes
from jinja2.visitor import NodeTransformer

_SEARCHES = frozenset(
    {
        "split", "rsplit", "partition", "rpartition", "startswith", "endswith", "strip", "lstrip", "rstrip", "find",
        "rfind", "index", "rindex", "count", "removeprefix", "removesuffix",
    }
)  # fmt: skip


@attrs.frozen(kw_only=True)
class Rewrite:
    """`text` is applied to every literal that may be written. `role_seam` is put before and after a message's role
    where that is written or joined with other text.
    """

    text: Callable[[str], str]
    role_seam: str = ""


def rewrite_literals(tree: nodes.Template, rewrite: Rewrite) -> None:
    """Changes `tree` in place."""
    _Rewriter(rewrite).visit(tree)


class _Rewriter(NodeTransformer):
    def __init__(self, rewrite: Rewrite) -> None:
        self._rewrite = rewrite

    def visit_TemplateData(self, node: nodes.TemplateData) -> nodes.Node:
        node.data = self._rewrite.text(node.data)
        return node

    def visit_Const(self, node: nodes.Const) -> nodes.Node:
        if isinstance(node.value, str):
            node.value = self._rewrite.text(node.value)
        return node

    def visit_Output(self, node: nodes.Output) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [self._with_seams(part) for part in node.nodes]
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        node.nodes = [self._with_seams(part) for part in node.nodes]
        return node

    def visit_Add(self, node: nodes.Add) -> nodes.Node:
        self.generic_visit(node)
        node.left, node.right = self._with_seams(node.left), self._with_seams(node.right)
        return node

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        return node

    def visit_Test(self, node: nodes.Test) -> nodes.Node:
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        node.node = self.visit(node.node)
        return node

    def visit_Filter(self, node: nodes.Filter) -> nodes.Node:
        return self._all_but_first(node) if node.name == "replace" else self.generic_visit(node)

    def visit_Call(self, node: nodes.Call) -> nodes.Node:
        called = node.node
        if isinstance(called, nodes.Name) and called.name == "raise_exception":
            return node
        if isinstance(called, nodes.Getattr) and called.attr in _SEARCHES:
            node.node = self.visit(called)
            return node
        if isinstance(called, nodes.Getattr) and called.attr == "replace":
            return self._all_but_first(node)
        return self.generic_visit(node)

    def _all_but_first(self, node: nodes.Filter | nodes.Call) -> nodes.Node:
        """`replace` looks for its first argument and writes its second."""
        looked_for, node.args = node.args[:1], node.args[1:]
        self.generic_visit(node)
        node.args = looked_for + node.args
        return node

    def _with_seams(self, node: nodes.Expr) -> nodes.Expr:
        if not self._rewrite.role_seam or not _is_role(node):
            return node
        seam = nodes.Const(self._rewrite.role_seam)
        return nodes.Concat([seam, node, seam], lineno=node.lineno)


def _is_role(node: nodes.Expr | None) -> bool:
    """Whether an expression is `message.role`, `message["role"]`, a variable `role`, or one of these filtered."""
    match node:
        case nodes.Getattr():
            return node.attr == "role"
        case nodes.Getitem():
            return isinstance(node.arg, nodes.Const) and node.arg.value == "role"
        case nodes.Name():
            return node.name == "role"
        case nodes.Filter():
            return _is_role(node.node)
        case _:
            return False
