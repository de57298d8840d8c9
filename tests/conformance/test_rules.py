"""RULES.md names tests that exist, and every one of this folder."""

from pathlib import Path

from rules import named_by, named_in

HERE = Path(__file__).parent


def test_the_rules_name_their_tests() -> None:
    named = named_by(HERE / "RULES.md")
    for path in HERE.glob("test_*.py"):
        missing = named_in(path) - named.get(path, set())
        assert not missing or path.name == Path(__file__).name, f"RULES.md does not name {missing}"
