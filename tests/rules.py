"""Pages of rules: tables whose rows say what holds, each with the tests that prove it."""

import ast
import re
from pathlib import Path

TESTS = Path(__file__).parent
_REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def named_in(path: Path) -> set[str]:
    """The tests of a file."""
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def named_by(page: Path) -> dict[Path, set[str]]:
    """The tests that a page names, by their file. A file without a folder is in the page's own.

    Fails where a rule has no test, or names one that is not there.
    """
    named: dict[Path, set[str]] = {}
    for line in page.read_text(encoding="utf-8").splitlines():
        references = _REFERENCE.findall(line)
        assert references or not line.startswith("| ") or line.startswith("| Rule"), f"no test: {line}"
        for file, test in references:
            path = TESTS / file if "/" in file else page.parent / file
            named.setdefault(path, set()).add(test)
    for path, tests in named.items():
        assert path.is_file(), path
        assert tests <= named_in(path), f"{path.name} has no {tests - named_in(path)}"
    return named
