"""A conversation: what was said, with which model, and how it is kept as a file. Knows no terminal and no serve."""

import json
from collections.abc import Sequence
from pathlib import Path

from hipfire.cli.question import Turn

_HEADINGS = {"system": "System", "user": "You"}


class Conversation:
    """`model` answers, told `system` before all else, if that is set. `turns` begin with a user's and take turns."""

    def __init__(self, *, model: str, system: str | None) -> None:
        self.model = model
        self.system = system
        self.turns: list[Turn] = []

    def opened(self, turns: Sequence[Turn]) -> list[Turn]:
        """Turns, with the system prompt before them."""
        return [*([] if self.system is None else [Turn(role="system", content=self.system)]), *turns]

    def save(self, path: Path) -> None:
        """Write it as Markdown, or, to a .json file, as the messages of a request. Raises OSError.

        A file that is there is not overwritten: FileExistsError.
        """
        text = _as_json(self.opened(self.turns)) if path.suffix == ".json" else self._as_markdown()
        with path.open("x", encoding="utf-8") as file:
            file.write(text)

    def _as_markdown(self) -> str:
        parts = [f"## {_HEADINGS.get(turn.role, self.model)}\n\n{turn.content}\n" for turn in self.opened(self.turns)]
        return "\n".join(parts)


def _as_json(turns: Sequence[Turn]) -> str:
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    return json.dumps({"messages": messages}, indent=2, ensure_ascii=False) + "\n"
