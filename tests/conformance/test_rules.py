"""RULES.md names tests that exist, and every one of this folder."""

import ast
import re
from pathlib import Path

HERE = Path(__file__).parent
_REFERENCE = re.compile(r"`([\w/]+\.py)::(\w+)`")


def named_in(path: Path) -> set[str]:
    return {
        node.name
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


def test_the_rules_name_their_tests() -> None:
    named: dict[Path, set[str]] = {}
    for line in (HERE / "RULES.md").read_text(encoding="utf-8").splitlines():
        references = _REFERENCE.findall(line)
        assert references or not line.startswith("| ") or line.startswith("| Rule"), f"no test: {line}"
        for file, test in references:
            path = HERE.parent / file if "/" in file else HERE / file
            named.setdefault(path, set()).add(test)
    for path, tests in named.items():
        assert path.is_file(), path
        assert tests <= named_in(path), f"{path.name} has no {tests - named_in(path)}"
    for path in HERE.glob("test_*.py"):
        missing = named_in(path) - named.get(path, set())
        assert not missing or path.name == Path(__file__).name, f"RULES.md does not name {missing}"
