"""Draws the packages of hipfire and what they import into architecture.md, from the code as it is.

`python docs/draw_imports.py` rewrites the picture between the two markers; tests/test_layout.py fails when it is out
of date. Knows which imports there are, not which are allowed: that is the test's table.
"""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hipfire"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN = "<!-- drawn by docs/draw_imports.py: begin -->\n"
END = "<!-- drawn by docs/draw_imports.py: end -->\n"

FOUNDATION = ("errors", "dtypes")
"""Imported nearly everywhere: as arrows they would hide all others, so the page lists them in words."""


def module_imports(package: Path = PACKAGE) -> dict[str, set[str]]:
    """For every module of the package, by dotted name, the modules of the same package that it imports."""
    paths = {_dotted(path, package): path for path in sorted(package.rglob("*.py"))}
    return {name: {_module(target, paths) for target in _imported(path, package.name)} for name, path in paths.items()}


def part(module: str) -> str:
    """The package or top-level module that a module belongs to: `hipfire.formats.gguf` is of `formats`."""
    return module.split(".")[1] if "." in module else ""


def part_imports(modules: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The same between parts; an import within a part, or of the bare package for its version, is left out."""
    parts: dict[str, set[str]] = {part(module): set() for module in modules if part(module)}
    for module, targets in modules.items():
        if part(module):
            parts[part(module)] |= {part(target) for target in targets} - {part(module), ""}
    return parts


def draw(parts: Mapping[str, set[str]]) -> str:
    """A Mermaid flowchart, and a line of words for each part of the foundation."""
    arrows = [
        f"    {name} --> {target}"
        for name in sorted(parts)
        for target in sorted(parts[name])
        if target not in FOUNDATION
    ]
    words = [
        f"`{target}` is imported by {', '.join(sorted(name for name in parts if target in parts[name])) or 'nothing'}."
        for target in FOUNDATION
    ]
    return "\n".join(["```mermaid", "flowchart TD", *arrows, "```", "", *words, ""])


def redrawn(page: str) -> str:
    """The page with a picture of the code as it is now."""
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    return f"{before}{BEGIN}{draw(part_imports(module_imports()))}{END}{after}"


def _dotted(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imported(path: Path, package: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (name for name in names if name.split(".")[0] == package)


def _module(target: str, modules: Mapping[str, object]) -> str:
    """`from a.b import c` names a module a.b.c, or something in the module a.b."""
    return target if target in modules else target.rpartition(".")[0]


if __name__ == "__main__":
    PAGE.write_text(redrawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
