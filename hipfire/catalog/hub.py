"""Files of the Hugging Face Hub, by way of `huggingface_hub`.

The library knows the addresses, the token, proxies, certificates, time-outs and offline mode, from its own settings and
`HF_*` variables, and its session sends the requests. Only the body is read here: since 2.0 its `hf_hub_download` begins
anew each time, and the function below that forgets up to 10 MiB when a connection breaks. What came is checked against
the hash, whatever the server said.

Importing the library takes a third of a second. Knows no cards and no folders.
"""

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs
import httpx2
from huggingface_hub import HfApi, get_hf_file_metadata, get_session, get_token, hf_hub_url, hf_raise_for_status
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from hipfire.catalog.registry import HubFile
from hipfire.errors import DownloadError

OnBytes = Callable[[int], None]
"""Called with the number of bytes that are here, or were checked."""

_CHUNK_NBYTES = 1 << 20
# As the library: a connection that breaks is taken up again, unless nothing came this often in a row.
_MAX_BREAKS = 5
_PAUSE_S = 1.0
_TIMEOUT_S = 20.0
_KEPT = "what came so far is kept, try again"
_NOTHING_KEPT = "try again later"


@attrs.frozen(kw_only=True)
class RemoteFile:
    """A file of one commit: `url` cannot come to mean another content."""

    path: str
    url: str
    nbytes: int
    sha256: str


@attrs.frozen(kw_only=True)
class Repository:
    """What a repository says of itself. `architecture` is that of its GGUF files, where it tells."""

    commit: str
    files: tuple[HubFile, ...]
    architecture: str | None
    context_length: int
    license: str


class Hub:
    """The hub that HF_ENDPOINT among the `variables` names, else the public one; HF_TOKEN is shown to it."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._endpoint = variables.get("HF_ENDPOINT") or None
        self._token = variables.get("HF_TOKEN") or None

    @property
    def name(self) -> str:
        """What people know it by."""
        return self._endpoint or "the Hugging Face Hub"

    def look_up(self, repo: str, revision: str) -> Repository:
        """A repository's files, with their sizes and hashes. Raises DownloadError."""
        api = HfApi(endpoint=self._endpoint, token=self._token)
        with self._explained(repo):
            info = api.model_info(repo, revision=revision, files_metadata=True, timeout=_TIMEOUT_S)
        gguf = info.gguf or {}
        files = [
            HubFile(path=file.rfilename, nbytes=file.size, sha256=file.lfs.sha256 if file.lfs is not None else None)
            for file in info.siblings or []
        ]
        return Repository(
            commit=info.sha or revision,
            files=tuple(files),
            architecture=gguf.get("architecture"),
            context_length=gguf.get("context_length") or 0,
            license=(info.card_data.get("license") if info.card_data is not None else None) or "",
        )

    def describe(self, repo: str, revision: str, file: HubFile) -> RemoteFile:
        """A file as it is now. Raises DownloadError, also where it is not the file that is asked for."""
        with self._explained(repo, file.path):
            metadata = get_hf_file_metadata(
                self._url(repo, revision, file.path), token=self._token, endpoint=self._endpoint
            )
        sha256, nbytes = metadata.etag, metadata.size
        if sha256 is None or len(sha256) != hashlib.sha256().digest_size * 2 or nbytes is None:
            raise DownloadError(f"{self.name} does not tell size and SHA-256 of {file.path} in {repo}")
        if (file.sha256 or sha256, file.nbytes or nbytes) != (sha256, nbytes):
            raise DownloadError(
                f"{file.path} in {repo} has changed: {nbytes} bytes with SHA-256 {sha256} are not those known to be it",
                hint=f"hipfire pull hf:{repo}/{file.path} takes it as it is",
            )
        url = self._url(repo, metadata.commit_hash or revision, file.path)
        return RemoteFile(path=file.path, url=url, nbytes=nbytes, sha256=sha256)

    def fetch(self, repo: str, file: RemoteFile, target: Path, on_bytes: OnBytes) -> None:
        """Download a file, or what is missing at the end of it. Raises DownloadError, OSError; what came stays."""
        n_breaks = 0
        # Unbuffered, so that what came is there whatever happens next.
        with self._explained(repo, file.path, target), target.open("ab", buffering=0) as out:
            while (before := out.tell()) < file.nbytes:
                try:
                    self._read_body(file, out, on_bytes)
                except (httpx2.NetworkError, httpx2.RemoteProtocolError, httpx2.TimeoutException):
                    n_breaks = 0 if out.tell() > before else n_breaks + 1
                    if n_breaks == _MAX_BREAKS:
                        raise
                    time.sleep(_PAUSE_S)
                else:
                    break
            os.fsync(out.fileno())

    def _read_body(self, file: RemoteFile, out: BinaryIO, on_bytes: OnBytes) -> None:
        """Append what one answer has. Raises DownloadError where it is too long, and what the library raises."""
        headers = {"Range": f"bytes={out.tell()}-", "Accept-Encoding": "identity"}
        if token := self._token or get_token():
            # Where the content is on another host, the session does not show it there.
            headers["Authorization"] = f"Bearer {token}"
        with get_session().stream("GET", file.url, headers=headers, timeout=_TIMEOUT_S) as reply:
            hf_raise_for_status(reply)
            if reply.status_code != httpx2.codes.PARTIAL_CONTENT:
                # All of it, from the start.
                out.seek(0)
                out.truncate()
            on_bytes(out.tell())
            for chunk in reply.iter_bytes():
                if out.tell() + len(chunk) > file.nbytes:
                    raise DownloadError(f"what comes as {file.path} is longer than its {file.nbytes} bytes")
                _write(out, chunk)
                on_bytes(out.tell())

    def _url(self, repo: str, revision: str, path: str) -> str:
        return hf_hub_url(repo, path, revision=revision, endpoint=self._endpoint)

    @contextmanager
    def _explained(self, repo: str, path: str | None = None, target: Path | None = None) -> Iterator[None]:
        """Turn what the library raises into a DownloadError of one line, but for errors of the disk.

        `target` is the file that is downloaded, where one is.
        """
        what = repo if path is None else f"{path} in {repo}"
        try:
            yield
        except GatedRepoError as error:
            raise DownloadError(
                f"{repo} is only for those who have accepted its terms",
                hint=f"accept them at {self._endpoint or 'https://huggingface.co'}/{repo}, make a token there, "
                "and set HF_TOKEN to it",
            ) from error
        except RepositoryNotFoundError as error:
            raise DownloadError(
                f"{self.name} has no {repo}, or does not show it to you",
                hint="check the name; if it is private, set HF_TOKEN to your token",
            ) from error
        except (RemoteEntryNotFoundError, RevisionNotFoundError) as error:
            raise DownloadError(f"{self.name} has no {what}", hint="look there for what it has") from error
        except HFValidationError as error:
            raise DownloadError(f"{repo!r} is no name of a repository", hint="they are like owner/name") from error
        except OfflineModeIsEnabled as error:
            raise DownloadError(f"{what} is not here, and HF_HUB_OFFLINE forbids to download it") from error
        except FileMetadataError as error:
            raise DownloadError(f"{self.name} does not answer as a hub does", hint="check HF_ENDPOINT") from error
        except HfHubHTTPError as error:
            raise self._refusal(what, error.response.status_code, _again(target)) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            reason = str(error) or type(error).__name__
            raise DownloadError(
                f"{self.name} cannot be reached for {what}: {reason}", hint=f"check the network; {_again(target)}"
            ) from error

    def _refusal(self, what: str, status: int, again: str) -> DownloadError:
        if status in {httpx2.codes.UNAUTHORIZED, httpx2.codes.FORBIDDEN}:
            return DownloadError(
                f"{self.name} refuses {what} (status {status})",
                hint="HF_TOKEN is not accepted; make a new token" if self._token else "set HF_TOKEN to your token",
            )
        return DownloadError(f"{self.name} answers {what} with status {status}", hint=again)


def _again(target: Path | None) -> str:
    """What to do after a failure, which depends on whether a part came."""
    return _KEPT if target is not None and target.exists() and target.stat().st_size else _NOTHING_KEPT


def _write(out: BinaryIO, chunk: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part, and only then says so."""
    view = memoryview(chunk)
    while view:
        view = view[out.write(view) :]


def check_content(file: RemoteFile, path: Path, on_bytes: OnBytes) -> None:
    """Compare size and hash of what was downloaded. Raises DownloadError: where it is too short, it is kept."""
    if path.stat().st_size < file.nbytes:
        raise DownloadError(f"only a part of {file.path} came", hint=_KEPT)
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as source:
        while chunk := source.read(_CHUNK_NBYTES):
            digest.update(chunk)
            done += len(chunk)
            on_bytes(done)
    if (done, digest.hexdigest()) != (file.nbytes, file.sha256):
        path.unlink()
        raise DownloadError(
            f"what was downloaded is not {file.path}: its SHA-256 should be {file.sha256}",
            hint="it was removed; try again",
        )
