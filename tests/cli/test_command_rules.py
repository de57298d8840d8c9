"""RULES.md has a section for each command, names tests that exist, and every one that drives a serve's life."""

import re
from pathlib import Path

from rules import named_by, named_in

from hipfire.cli.main import COMMANDS

HERE = Path(__file__).parent
PAGE = HERE / "RULES.md"


def test_the_rules_name_their_tests() -> None:
    named = named_by(PAGE)
    for name in ("test_serve_command.py", "test_serve_lifecycle.py", "test_stop_command.py", "test_chat_command.py"):
        missing = named_in(HERE / name) - named.get(HERE / name, set())
        assert not missing, f"RULES.md does not name {missing}"


def test_every_command_has_rules() -> None:
    sections = re.findall(r"^## `hipfire (\w+)", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted(sections) == sorted([*COMMANDS, "help"])
