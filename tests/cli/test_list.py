import json
from collections.abc import Callable
from pathlib import Path

from real_program import Program

from hipfire.catalog.registry import load_registry

Install = Callable[[str], Path]


def test_an_empty_store_says_what_to_do(program: Program) -> None:
    done = program.run("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert "try: hipfire pull smollm2:135m" in done.stderr


def test_models_are_listed_a_line_each(program: Program, install: Install) -> None:
    install("mine.gguf")
    install("[red]odd.gguf")
    done = program.run("list")
    header, *rows = done.stdout.splitlines()
    assert header.split() == ["model", "arch", "quant", "size", "context", "changed", "also", "called"]
    assert [row.split()[:2] for row in rows] == [["[red]odd", "llama"], ["mine", "llama"]]


def test_a_broken_file_is_listed_with_what_is_wrong(program: Program, install: Install) -> None:
    install("mine.gguf")
    (program.models_dir / "broken.gguf").write_bytes(b"GGUF")
    done = program.run("list")
    assert done.returncode == 0
    assert "broken" in done.stdout
    assert "broken cannot be used: " in done.stderr


def test_aliases_and_what_is_missing_are_listed(program: Program, install: Install) -> None:
    install("mine.gguf")
    (program.root / "models.toml").write_text('[model.mine]\naliases = ["small"]\n[model.gone]\npath = "gone.gguf"\n')
    gone, mine = program.run("list").stdout.splitlines()[1:]
    assert gone.split() == ["gone", "missing"]
    assert mine.split()[-1] == "small"


def test_json_is_one_document(program: Program, install: Install) -> None:
    path = install("mine.gguf")
    done = program.run("list", "--json")
    (row,) = json.loads(done.stdout)
    assert (row["tag"], row["path"], row["arch"], row["problem"]) == ("mine", str(path), "llama", None)
    assert row["size_bytes"] == path.stat().st_size
    assert json.loads(program.run("list", "-j", HIPFIRE_MODELS_DIR="/nothing").stdout) == []


def test_the_registry_is_listed_with_what_is_here(program: Program) -> None:
    done = program.run("list", "-r")
    assert [line.split()[:2] for line in done.stdout.splitlines()[1:]] == [[tag, "no"] for tag in load_registry().cards]
    (base,) = [line for line in done.stdout.splitlines() if line.startswith("gemma3:270m")]
    assert base.split()[1:4] == ["no", "bench", "only"]
    rows = json.loads(program.run("list", "-r", "-j").stdout)
    assert [row["tag"] for row in rows if not row["chats"]] == ["gemma3:270m"]
    assert [(row["tag"], row["installed"]) for row in rows] == [(tag, False) for tag in load_registry().cards]
