"""Pulls a model onto a small disk that is filled up meanwhile, and once more when there is room again.

A program of its own, to be run by `on_a_small_disk` with a card and an environment as JSON. Prints the outcome of both
attempts, and what models there were then.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import attrs
import cattrs
import pytest

from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.pull import pull
from hipfire.catalog.registry import Card
from hipfire.errors import DownloadError


def on_a_small_disk(folder: Path, card: Card, variables: Mapping[str, str], *, size: str) -> list[str]:
    """The lines that this program prints. Skips the test where nothing can be mounted."""
    folder.mkdir()
    done = subprocess.run(
        [
            "unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
            'mount -t tmpfs -o "size=$1" none "$2" && shift 2 && exec "$@"', "sh", size, str(folder),
            sys.executable, __file__, str(folder), json.dumps(attrs.asdict(card)), json.dumps(dict(variables)),
        ],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def main() -> None:
    models_dir = Path(sys.argv[1])
    filler = models_dir / "filler"
    converter = cattrs.Converter()
    converter.register_structure_hook(bool | int | float | str, lambda value, _: value)
    card = converter.structure(json.loads(sys.argv[2]), Card)

    def fill_up(_phase: Phase, done: int, _total: int) -> None:
        if done and not filler.exists():
            with filler.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(1 << 16)):
                        pass
                except OSError:
                    # A little room, so that the next write is a short one.
                    file.truncate(file.tell() - 3 * 4096)

    def attempt(on_progress: OnProgress) -> None:
        try:
            outcome = str(pull(card, models_dir, variables=json.loads(sys.argv[3]), on_progress=on_progress))
        except DownloadError as error:
            outcome = str(error)
        sys.stdout.write(f"{outcome} {[(path.name, path.stat().st_size) for path in models_dir.glob('*.gguf')]}\n")

    attempt(fill_up)
    filler.unlink()
    attempt(lambda *_: None)


if __name__ == "__main__":
    main()
