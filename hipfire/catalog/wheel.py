"""Downloads a wheel by running pip, so that every index setting a person made for pip holds here too.

Index and extra indexes, mirrors, files and folders, certificates, proxies, credentials: pip knows them from its config
files, its variables, netrc and keyrings, and speaks to the index as an index wants it. A client of our own would
be wrong about one of them. `--progress-bar=raw` makes pip print the bytes that came, for a bar of our own; what breaks
off on the way, pip resumes. Therefore pip is among hipfire's dependencies: an environment may come without it.
Knows no models.
"""

import errno
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from hipfire.errors import DownloadError

_PROGRESS = re.compile(r"Progress (\d+) of (\d+)$")


def download_wheel(
    requirement: str, folder: Path, *, variables: Mapping[str, str], on_bytes: Callable[[int], None]
) -> Path:
    """Download the wheel of a requirement such as `name==1.0` into a folder of its own; return its path.

    A whole wheel that is in the folder already is not downloaded again. `on_bytes` is told how many bytes are here.
    `variables` is pip's environment. Raises DownloadError. An exception on the way, KeyboardInterrupt included,
    ends pip before it goes on.
    """
    if importlib.util.find_spec("pip") is None:
        raise DownloadError("downloading needs pip, and this Python has none", hint="python -m ensurepip")
    # In memory: the disk may be what is full.
    with _scratch(folder / "tmp") as scratch, os.fdopen(os.memfd_create("pip-errors"), "w+") as errors:
        # pip's own scratch files are as large as the wheel: /tmp may have no room for them, and this is tidied up.
        environment = {**variables, "TMPDIR": str(scratch)}
        command = [
            sys.executable, "-P", "-m", "pip", "download", "--disable-pip-version-check", "--no-input", "--no-deps",
            "--only-binary=:all:", "--no-cache-dir", "--progress-bar=raw", "--retries=2", "--dest", str(folder),
            requirement,
        ]  # fmt: skip
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment) as pip:
            try:
                _follow(pip, on_bytes)
            except BaseException:
                pip.terminate()
                raise
        if pip.returncode != 0:
            raise _failure(requirement, folder, errors)
    return next(folder.glob("*.whl"))


@contextmanager
def _scratch(path: Path) -> Iterator[Path]:
    """An empty folder that is removed in the end, or by the next who wants it."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _follow(pip: "subprocess.Popen[str]", on_bytes: Callable[[int], None]) -> None:
    assert pip.stdout is not None
    for line in pip.stdout:
        if match := _PROGRESS.search(line.rstrip()):
            on_bytes(int(match[1]))


def _failure(requirement: str, folder: Path, errors: IO[str]) -> DownloadError:
    """What pip said first, in one line."""
    errors.seek(0)
    lines = errors.read().splitlines()
    said = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
    why = said[0] if said else (lines[-1].strip() if lines else "it says nothing")
    if any("connection broken by" in line for line in lines):
        return DownloadError(
            f"the package index cannot be reached to download {requirement}",
            hint="check the network, or pip's index settings: pip config list",
        )
    no_space = os.strerror(errno.ENOSPC)
    if any(no_space in line for line in lines):
        return DownloadError(
            f"cannot write {folder}: {no_space}", hint="make room, or put the models elsewhere with HIPFIRE_MODELS_DIR"
        )
    return DownloadError(
        f"pip could not download {requirement}: {why}", hint="check pip's index settings: pip config list"
    )
