"""Holds the layout: who may import whom, how long a file may be, and what a file may not contain.

MAY_IMPORT is the twin of the table in docs/architecture.md; a new package gets a row in both.
"""

import ast
import graphlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import draw_imports
import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "hipfire"

MAY_IMPORT = {
    "errors": "",
    "log_lines": "",
    "dtypes": "",
    "config": "errors",
    "formats": "dtypes errors",
    "catalog": "config formats errors",
    "grammar": "errors",
    "text": "grammar formats errors",
    "program": "dtypes errors",
    "models": "program formats dtypes errors",
    "kernels": "program dtypes errors",
    "hip": "errors",
    "devices": "program kernels hip dtypes errors",
    "wire": "errors",
    "engine": "models devices grammar formats program wire dtypes errors log_lines",
    "service": "text grammar wire catalog config formats errors",
    "server": "service text config errors",
    "lifecycle": "config errors",
    "cli": "server service lifecycle catalog text config errors log_lines",
    "__main__": "cli",
}

MAX_LINES = {".py": 400, ".c": 600, ".h": 600, ".hip": 600}

# Names that say nothing of what a file is for.
VAGUE = {"util", "utils", "common", "helper", "helpers", "manager", "misc"}

# Written in pieces, so that this file does not contain them.
REGISTRIES = ["pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".org", "deb.debian" + ".org", "crates" + ".io"]
MACHINE_PATH = re.compile(r"(?<![\w.:/-])/(?:work|root|opt(?!/rocm))/")

# Runs as a program of its own (`python -m pip`), so no import shows that it is needed.
RUN_NOT_IMPORTED = {"pip"}

# Distributions whose module has another name.
MODULE_OF = {"markdown_it_py": "markdown_it"}


def package_files(*suffixes: str) -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*") if path.suffix in suffixes)


def tracked_files() -> list[Path]:
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip("not a git checkout")
    return [ROOT / name for name in done.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_every_import_goes_down_the_layers() -> None:
    modules = draw_imports.module_imports()
    against = [
        f"{module} imports {target}"
        for module, targets in modules.items()
        for target in targets
        if draw_imports.part(module) not in ("", draw_imports.part(target))
        and draw_imports.part(target) not in ("", *MAY_IMPORT.get(draw_imports.part(module), "").split())
    ]
    assert against == []


def test_every_part_has_a_row() -> None:
    parts = set(draw_imports.part_imports(draw_imports.module_imports()))
    assert parts - set(MAY_IMPORT) == set()


def test_table_in_the_docs_says_the_same() -> None:
    page = draw_imports.PAGE.read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|[^|]+\| ([\w –]+) \|$", page, flags=re.MULTILINE)
    assert {name: allowed.replace("–", "") for name, allowed in rows} == MAY_IMPORT


def test_table_allows_no_cycle() -> None:
    graphlib.TopologicalSorter({part: allowed.split() for part, allowed in MAY_IMPORT.items()}).prepare()


def test_modules_import_in_no_cycle() -> None:
    modules = draw_imports.module_imports()
    graphlib.TopologicalSorter({name: targets - {name} for name, targets in modules.items()}).prepare()


def test_no_file_is_too_long() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in tracked_files()
        if path.suffix in MAX_LINES
    }
    assert {name: size for name, size in sizes.items() if size > MAX_LINES[Path(name).suffix]} == {}


def test_names_say_what_a_file_is_for() -> None:
    vague = [
        str(path.relative_to(ROOT))
        for path in tracked_files()
        if VAGUE & set(re.split(r"[^a-z]+", str(path.relative_to(ROOT).with_suffix("")).lower()))
    ]
    assert vague == []


def test_every_module_has_a_docstring() -> None:
    bare = [
        str(path.relative_to(ROOT))
        for path in package_files(".py")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert bare == []


def reads_environment(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return "getenv" in text
    names = {"environ", "environb", "getenv", "getenvb"}
    return any(
        (isinstance(node, ast.Attribute) and node.attr in names) or (isinstance(node, ast.alias) and node.name in names)
        for node in ast.walk(ast.parse(text))
    )


def test_only_config_reads_the_environment() -> None:
    readers = [path.relative_to(PACKAGE) for path in package_files(*MAX_LINES) if reads_environment(path)]
    assert [str(path) for path in readers if path.parts[0] != "config"] == []


def test_no_file_names_a_registry_or_a_machine() -> None:
    found = []
    for path in tracked_files():
        content = path.read_bytes()
        if b"\0" in content:
            continue
        text = content.decode("utf-8", errors="replace")
        words = [word for word in REGISTRIES if word in text] + MACHINE_PATH.findall(text)
        found += [f"{path.relative_to(ROOT)}: {word}" for word in words]
    assert found == []


def test_dependencies_are_what_is_imported() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    names = {re.split(r"[ \[<>=]", line)[0].replace("-", "_") for line in settings["project"]["dependencies"]}
    declared = {MODULE_OF.get(name, name) for name in names}
    imported = set()
    for path in package_files(".py"):
        if str(path.relative_to(ROOT)) in settings["tool"]["hatch"]["build"]["targets"]["wheel"]["exclude"]:
            continue  # runs in the build environment or a checkout, with the requirements of these
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                imported.add(node.module.split(".")[0])
    third_party = imported - sys.stdlib_module_names - {"hipfire"}
    assert third_party == declared - RUN_NOT_IMPORTED


def test_picture_of_imports_is_up_to_date() -> None:
    page = draw_imports.PAGE.read_text(encoding="utf-8")
    assert page == draw_imports.redrawn(page), "run: python docs/draw_imports.py"
