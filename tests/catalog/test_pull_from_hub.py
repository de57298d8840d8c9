import random
import threading
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
from catalog.pull_on_full_disk import on_a_small_disk
from model_hub import COMMIT, ModelHub, model_hub

from hipfire.catalog.from_hub import find_card
from hipfire.catalog.hub_name import parse_hub_name
from hipfire.catalog.partials import list_partials
from hipfire.catalog.progress import OnProgress, Phase
from hipfire.catalog.pull import pull
from hipfire.catalog.registry import Card, HubFile, HubSource
from hipfire.catalog.sources import find_pulled, forget_source
from hipfire.errors import DownloadError, UnsupportedFile

REPO = "owner/model-GGUF"
FILE = random.Random(1).randbytes(300_000)
PARTS = FILE[:100_000], FILE[100_000:180_000], FILE[180_000:]
PART_NAMES = [f"Q8_0/model-Q8_0-0000{i}-of-00003.gguf" for i in (1, 2, 3)]


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with model_hub() as hub:
        yield hub


def card_of(*files: HubFile, **changes: object) -> Card:
    card = Card(
        tag="model:1b",
        aliases=(),
        about="",
        license="",
        architecture="llama",
        file=Path(files[0].path).name,
        nbytes=len(FILE),
        quant="",
        context_length=1,
        settings={},
        hub=HubSource(repo=REPO, files=files),
    )
    return attrs.evolve(card, **changes)


@pytest.fixture
def card(hub: ModelHub) -> Card:
    """A model of one file, which is published."""
    sha256 = hub.add(REPO, "model.gguf", FILE)
    return card_of(HubFile(path="model.gguf", nbytes=len(FILE), sha256=sha256))


@pytest.fixture
def split_card(hub: ModelHub) -> Card:
    """A model of three parts in a folder, of which the card knows neither size nor hash."""
    for name, content in zip(PART_NAMES, PARTS, strict=True):
        hub.add(REPO, name, content)
    return card_of(*(HubFile(path=name) for name in PART_NAMES))


def ignore(_phase: Phase, _done: int, _total: int) -> None:
    """Progress that nobody watches."""


def pull_into(folder: Path, card: Card, hub: ModelHub, on_progress: OnProgress = ignore, **variables: str) -> Path:
    return pull(card, folder, variables=hub.variables(**variables), on_progress=on_progress)


def interrupt(_phase: Phase, done: int, _total: int) -> None:
    if done:
        raise KeyboardInterrupt


def files_in(folder: Path) -> list[str]:
    """Every file below the folder but for lock files."""
    return sorted(
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_a_file_comes_whole_and_nothing_else_stays(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    seen: list[tuple[Phase, int, int]] = []
    path = pull_into(tmp_path / "new", card, hub, lambda *progress: seen.append(progress))
    assert path.read_bytes() == FILE
    assert files_in(tmp_path / "new") == ["model.gguf"]
    assert (Phase.DOWNLOAD, len(FILE), len(FILE)) in seen
    assert seen[-1] == (Phase.CHECK, len(FILE), len(FILE))
    # By commit: what is asked for cannot change on the way.
    assert hub.downloads == [(f"/{REPO}/resolve/{COMMIT}/model.gguf", "bytes=0-")]


def test_a_file_that_is_here_is_not_asked_for(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    (tmp_path / "model.gguf").write_bytes(FILE)
    pull_into(tmp_path, card, hub)
    assert hub.requests == []


def test_an_interrupted_pull_leaves_no_model_and_goes_on(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = FILE[:120_000]
    with pytest.raises(DownloadError, match=r"only a part of model\.gguf came .*try again"):
        pull_into(tmp_path, card, hub)
    assert not (tmp_path / "model.gguf").exists()
    (partial,) = list_partials(tmp_path)
    assert (partial.name, partial.nbytes, partial.total_nbytes, partial.running) == (
        "model:1b", 120_000, len(FILE), False,
    )  # fmt: skip

    hub.bodies.clear()
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE
    assert hub.downloads[-1][1] == "bytes=120000-"
    assert list_partials(tmp_path) == []


def test_an_interrupt_keeps_what_came(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = FILE[:50_000]
    with pytest.raises(DownloadError):
        pull_into(tmp_path, card, hub)
    hub.bodies.clear()
    with pytest.raises(KeyboardInterrupt):
        pull_into(tmp_path, card, hub, interrupt)
    assert list_partials(tmp_path)[0].nbytes == 50_000
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE


@pytest.mark.slow
def test_a_body_that_breaks_off_is_resumed_at_once(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.cut_after = 100_000
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE
    assert [wanted for _, wanted in hub.downloads] == ["bytes=0-", "bytes=100000-"]


def test_a_hub_that_ignores_the_range_is_read_from_the_start(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = FILE[:120_000]
    with pytest.raises(DownloadError):
        pull_into(tmp_path, card, hub)
    hub.bodies.clear()
    hub.heeds_range = False
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE
    assert hub.downloads[-1][1] == "bytes=120000-"


def test_other_content_is_refused_and_removed(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = bytes(len(FILE))
    with pytest.raises(DownloadError, match=r"what was downloaded is not model\.gguf: its SHA-256 should be"):
        pull_into(tmp_path, card, hub)
    assert files_in(tmp_path) == []
    hub.bodies.clear()
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE


def test_a_partial_that_was_tampered_with_does_not_become_a_model(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = bytes(120_000)
    with pytest.raises(DownloadError, match="only a part"):
        pull_into(tmp_path, card, hub)
    hub.bodies.clear()
    with pytest.raises(DownloadError, match="is not model"):
        pull_into(tmp_path, card, hub)
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE


def test_more_than_the_file_is_refused(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/model.gguf"] = FILE + b"more"
    with pytest.raises(DownloadError, match="is longer than its 300000 bytes"):
        pull_into(tmp_path, card, hub)
    hub.bodies.clear()
    assert pull_into(tmp_path, card, hub).read_bytes() == FILE


def test_a_file_that_is_not_the_card_s_is_refused_before_it_is_downloaded(
    tmp_path: Path, card: Card, hub: ModelHub
) -> None:
    hub.add(REPO, "model.gguf", FILE[::-1])
    with pytest.raises(DownloadError, match=r"model\.gguf in owner/model-GGUF has changed: .*pull hf:owner/mod"):
        pull_into(tmp_path, card, hub)
    assert hub.downloads == []
    assert files_in(tmp_path) == []


def test_what_the_hub_has_changed_meanwhile_is_not_joined(tmp_path: Path, split_card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/{PART_NAMES[0]}"] = PARTS[0][:50_000]
    with pytest.raises(DownloadError):
        pull_into(tmp_path, split_card, hub)
    changed = PARTS[0][::-1]
    hub.add(REPO, PART_NAMES[0], changed)
    hub.bodies[f"{REPO}/{PART_NAMES[0]}"] = changed[:20_000]
    with pytest.raises(DownloadError):
        pull_into(tmp_path, split_card, hub)
    assert list_partials(tmp_path)[0].nbytes == 20_000
    hub.bodies.clear()
    assert pull_into(tmp_path, split_card, hub).read_bytes() == PARTS[0][::-1]


def test_a_split_model_comes_whole_or_not_at_all(tmp_path: Path, split_card: Card, hub: ModelHub) -> None:
    hub.bodies[f"{REPO}/{PART_NAMES[2]}"] = b"x" * len(PARTS[2])
    with pytest.raises(DownloadError, match="is not Q8_0/model-Q8_0-00003-of-00003"):
        pull_into(tmp_path, split_card, hub)
    assert list(tmp_path.glob("*.gguf")) == []
    (partial,) = list_partials(tmp_path)
    assert partial.nbytes == len(PARTS[0]) + len(PARTS[1])

    hub.bodies.clear()
    hub.requests.clear()
    pull_into(tmp_path, split_card, hub)
    assert b"".join(path.read_bytes() for path in sorted(tmp_path.glob("*.gguf"))) == FILE
    assert [path.rsplit("/", 1)[1] for path, _ in hub.downloads] == ["model-Q8_0-00003-of-00003.gguf"]
    assert files_in(tmp_path) == [Path(name).name for name in PART_NAMES]


def test_the_first_part_is_put_in_place_last(tmp_path: Path, split_card: Card, hub: ModelHub) -> None:
    # As if the last attempt had been killed right after it put the last part in place.
    (tmp_path / "model-Q8_0-00003-of-00003.gguf").write_bytes(PARTS[2])
    pull_into(tmp_path, split_card, hub)
    assert len(hub.downloads) == 2
    assert (tmp_path / "model-Q8_0-00001-of-00003.gguf").read_bytes() == PARTS[0]


def test_another_file_of_a_part_s_name_is_left_alone(tmp_path: Path, split_card: Card, hub: ModelHub) -> None:
    (tmp_path / "model-Q8_0-00002-of-00003.gguf").write_bytes(b"mine")
    with pytest.raises(DownloadError, match="is in the way"):
        pull_into(tmp_path, split_card, hub)
    assert files_in(tmp_path) == ["model-Q8_0-00002-of-00003.gguf"]


def test_what_the_hub_does_not_have_is_said(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    missing = card_of(HubFile(path="other.gguf"))
    with pytest.raises(DownloadError, match=r"has no other\.gguf in owner/model-GGUF"):
        pull_into(tmp_path, missing, hub)
    nowhere = attrs.evolve(missing, hub=HubSource(repo="owner/nothing", files=(HubFile(path="other.gguf"),)))
    with pytest.raises(DownloadError, match=r"has no owner/nothing, or does not show it to you \(.*HF_TOKEN"):
        pull_into(tmp_path, nowhere, hub)
    assert files_in(tmp_path) == []


def test_a_gated_repository_says_what_to_do_and_takes_a_token(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.refusal, hub.token = (401, "GatedRepo"), "secret"
    with pytest.raises(DownloadError, match=r"only for those who have accepted its terms \(accept them at .*HF_TOKEN"):
        pull_into(tmp_path, card, hub)
    assert pull_into(tmp_path, card, hub, HF_TOKEN="secret").read_bytes() == FILE


@pytest.mark.parametrize(
    ("status", "says"),
    [(403, "HF_TOKEN is not accepted"), (500, "with status 500 .*try again"), (404, "with status 404")],
)
def test_any_other_refusal_has_its_status(status: int, says: str, tmp_path: Path, card: Card, hub: ModelHub) -> None:
    hub.refusal = (status, "")
    with pytest.raises(DownloadError, match=says):
        pull_into(tmp_path, card, hub, HF_TOKEN="old")


def test_a_hub_that_does_not_answer_is_one_line(tmp_path: Path, card: Card) -> None:
    with model_hub() as hub:
        pass
    with pytest.raises(DownloadError, match="cannot be reached for model") as caught:
        pull_into(tmp_path, card, hub)
    assert "\n" not in str(caught.value)
    assert "kept" not in str(caught.value)
    with pytest.raises(DownloadError, match="cannot be reached"):
        pull(card, tmp_path, variables={"HF_ENDPOINT": "nonsense"}, on_progress=ignore)


def test_too_little_space_is_found_before_anything_is_downloaded(
    tmp_path: Path, hub: ModelHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return 1 << 60

    hub.files[f"{REPO}/model.gguf"] = Huge(b"x")
    with pytest.raises(DownloadError, match=r"model:1b needs 1,152,921,504,607 MB in .* MB are free"):
        pull_into(tmp_path, card_of(HubFile(path="model.gguf")), hub)
    assert hub.downloads == []
    assert files_in(tmp_path) == []


def test_two_pulls_at_once_download_once(tmp_path: Path, card: Card, hub: ModelHub) -> None:
    waiting = threading.Event()
    results: list[bytes] = []

    def second() -> None:
        def on_progress(phase: Phase, _done: int, _total: int) -> None:
            if phase is Phase.WAIT:
                waiting.set()

        results.append(pull_into(tmp_path, card, hub, on_progress).read_bytes())

    other = threading.Thread(target=second)

    def on_progress(phase: Phase, done: int, _total: int) -> None:
        if phase is Phase.DOWNLOAD and not other.ident:
            other.start()
            assert waiting.wait(timeout=60)
            assert list_partials(tmp_path)[0].running

    results.append(pull_into(tmp_path, card, hub, on_progress).read_bytes())
    other.join(timeout=60)
    assert results == [FILE, FILE]
    assert len(hub.downloads) == 1


def test_a_model_that_could_not_run_is_refused_before_anything_is_asked_for(
    tmp_path: Path, card: Card, hub: ModelHub
) -> None:
    with pytest.raises(UnsupportedFile, match=r"of the architecture 'mamba'; this build runs gemma3, llama"):
        pull_into(tmp_path, attrs.evolve(card, architecture="mamba"), hub)
    with pytest.raises(DownloadError, match=r"model:1b cannot be pulled: nobody has published it"):
        pull_into(tmp_path, attrs.evolve(card, hub=None, note="nobody has published it"), hub)
    assert hub.requests == []


def find(text: str, hub: ModelHub) -> Card:
    name = parse_hub_name(text)
    assert name is not None
    return find_card(name, hub.variables())


def test_a_name_is_looked_up_and_pulled_as_it_was_then(tmp_path: Path, hub: ModelHub) -> None:
    hub.add(REPO, "model-Q4_K_M.gguf", FILE)
    hub.gguf = {"architecture": "llama", "context_length": 4096}
    card = find(f"hf:{REPO}", hub)
    assert (card.tag, card.file, card.nbytes, card.quant, card.context_length, card.runs) == (
        f"hf:{REPO}", "model-Q4_K_M.gguf", len(FILE), "Q4_K_M", 4096, True,
    )  # fmt: skip
    path = pull_into(tmp_path, card, hub)
    assert path.read_bytes() == FILE
    assert find_pulled(f"hf:{REPO}", tmp_path) == path
    # Another name of the same file.
    pull_into(tmp_path, find(f"hf:{REPO}:Q4_K_M", hub), hub)
    assert find_pulled(f"hf:{REPO}", tmp_path) == find_pulled(f"hf:{REPO}:Q4_K_M", tmp_path) == path
    assert find_pulled(f"hf:{REPO}:Q8_0", tmp_path) is None
    forget_source(path)
    assert find_pulled(f"hf:{REPO}", tmp_path) is None


def test_a_name_that_means_nothing_there_is_said(hub: ModelHub) -> None:
    hub.add(REPO, "model-Q4_K_M.gguf", FILE)
    with pytest.raises(DownloadError, match=r"owner/model-GGUF has no such model: Q4_K_M"):
        find(f"hf:{REPO}:Q8_0", hub)
    with pytest.raises(DownloadError, match="has no owner/nothing"):
        find("hf:owner/nothing", hub)
    with pytest.raises(DownloadError, match="is no name of a repository"):
        find("hf:owner/a--b..c", hub)
    hub.gguf = {"architecture": "mamba"}
    with pytest.raises(UnsupportedFile, match="'mamba'"):
        find(f"hf:{REPO}", hub)


def test_a_note_that_is_broken_is_no_note(tmp_path: Path) -> None:
    (tmp_path / ".sources").mkdir()
    (tmp_path / "a.gguf").write_bytes(b"")
    for text in ("", "[]", '{"names": 1}', '{"names": [1]}'):
        (tmp_path / ".sources" / "a.gguf.json").write_text(text)
        assert find_pulled("hf:o/a", tmp_path) is None


@pytest.mark.slow
def test_a_disk_that_fills_up_is_said_and_the_next_attempt_goes_on(tmp_path: Path, hub: ModelHub) -> None:
    content = random.Random(2).randbytes(8 << 20)
    sha256 = hub.add(REPO, "model.gguf", content)
    card = card_of(HubFile(path="model.gguf", sha256=sha256))
    first, second = on_a_small_disk(tmp_path / "disk", card, hub.variables(), size="12m")
    assert first.startswith("cannot write ")
    assert first.endswith("No space left on device (HIPFIRE_MODELS_DIR puts the models elsewhere) []")
    assert second.endswith(f"[('model.gguf', {len(content)})]")
    (_, at_first), (_, then) = hub.downloads
    assert at_first == "bytes=0-" != then
