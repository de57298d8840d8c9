"""Names of models on the Hugging Face Hub: `hf:owner/repo`, `hf:owner/repo:Q4_K_M`, `hf:owner/repo/file.gguf`.

Behind the repository there may be a revision: `hf:owner/repo@main:Q8_0`. Knows no network.
"""

import re
from collections.abc import Iterable
from pathlib import PurePosixPath

import attrs

from hipfire.catalog.registry import HubFile
from hipfire.errors import DownloadError

PREFIX = "hf:"
_DEFAULT_QUANT = "Q4_K_M"
_NAME = re.compile(
    r"hf:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+?))?(:(?P<quant>[\w.-]+)|/(?P<path>[\w./+-]+\.gguf))?"
)
_PART = re.compile(r"-(?P<number>\d{5})-of-(?P<count>\d{5})(?=\.gguf$)")
_QUANT = re.compile(r"[-._]((?:UD-)?(?:I?Q\d\w*|TQ\d_\d|MXFP4\w*|BF16|F16|F32))$", re.IGNORECASE)
# Files beside a model that are none: the eyes of one that sees, and statistics of its quantisation.
_COMPANION = re.compile(r"mmproj|imatrix", re.IGNORECASE)


@attrs.frozen(kw_only=True)
class HubName:
    """`quant` and `path` tell which of the repository's models is meant; neither, that it is easy to guess."""

    repo: str
    revision: str = "main"
    quant: str | None = None
    path: str | None = None

    def __str__(self) -> str:
        revision = "" if self.revision == "main" else f"@{self.revision}"
        which = f":{self.quant}" if self.quant else f"/{self.path}" if self.path else ""
        return f"{PREFIX}{self.repo}{revision}{which}"


def parse_hub_name(text: str) -> HubName | None:
    """The name, or None for what does not begin with `hf:`. Raises DownloadError for one that is written wrongly."""
    if not text.startswith(PREFIX):
        return None
    match = _NAME.fullmatch(text)
    if match is None:
        raise DownloadError(
            f"{text!r} names no model of the hub", hint="write hf:owner/repo:Q4_K_M or hf:owner/repo/file.gguf"
        )
    return HubName(repo=match["repo"], revision=match["revision"] or "main", quant=match["quant"], path=match["path"])


def quant_of(file: str) -> str:
    """The quantisation at the end of a file's name, empty where it tells none."""
    match = _QUANT.search(_stem(file))
    return match[1].upper() if match else ""


def choose_files(name: HubName, files: Iterable[HubFile]) -> tuple[HubFile, ...]:
    """The files of the model that a name means: one, or all parts of a split one in order.

    Raises DownloadError, which lists what could be meant.
    """
    models = _models(files)
    if name.path is not None:
        found = [parts for parts in models.values() if name.path in (part.path for part in parts)]
    elif name.quant is not None:
        found = _of_quant(models, name.quant)
    else:
        found = _of_quant(models, _DEFAULT_QUANT) or list(models.values())
    if not models:
        raise DownloadError(f"{name.repo} has no GGUF files", hint="look for a repository whose name ends in -GGUF")
    if len(found) != 1:
        known = ", ".join(sorted({quant_of(parts[0].path) or parts[0].path for parts in models.values()}))
        raise DownloadError(
            f"{name.repo} has {'several models' if found else 'no such model'}: {known}",
            hint=f"write hf:{name.repo}: and one of these",
        )
    return found[0]


def _models(files: Iterable[HubFile]) -> dict[str, tuple[HubFile, ...]]:
    """The models by their paths without number and suffix. Raises DownloadError for one that lacks parts."""
    models: dict[str, list[HubFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        name = PurePosixPath(file.path).name
        if name.endswith(".gguf") and not name.startswith(".") and not _COMPANION.search(name):
            models.setdefault(_PART.sub("", file.path).removesuffix(".gguf"), []).append(file)
    for stem, parts in models.items():
        match = _PART.search(parts[0].path)
        if match is not None and len(parts) != int(match["count"]):
            raise DownloadError(f"{stem} has {match['count']} parts, of which the hub has {len(parts)}")
    return {stem: tuple(parts) for stem, parts in models.items()}


def _of_quant(models: dict[str, tuple[HubFile, ...]], quant: str) -> list[tuple[HubFile, ...]]:
    """Those of a quantisation: exactly this one, or else its relative that `UD-` is put in front of."""
    for wanted in (quant.upper(), f"UD-{quant.upper()}"):
        found = [parts for stem, parts in models.items() if quant_of(stem) == wanted]
        if found:
            return found
    return []


def _stem(file: str) -> str:
    return PurePosixPath(_PART.sub("", file)).name.removesuffix(".gguf")
