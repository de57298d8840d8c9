import os
from collections.abc import Callable
from pathlib import Path

import attrs
import pytest

from hipfire.catalog.registry import Registry, load_registry
from hipfire.catalog.store import Store
from hipfire.config.own_models import read_own_models
from hipfire.errors import ConfigError, ModelNotFound

TINY = Path(__file__).parents[2] / "fixtures" / "tiny-llama" / "model.gguf"


@pytest.fixture
def models_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    return folder


@pytest.fixture
def registry() -> Registry:
    """The real one, but SmolLM2's file is as large as the tiny model's."""
    registry = load_registry()
    card = attrs.evolve(registry.cards["smollm2:135m"], nbytes=TINY.stat().st_size)
    return Registry(cards={**registry.cards, card.tag: card})


@pytest.fixture
def install(models_dir: Path) -> Callable[[str], Path]:
    def install(name: str) -> Path:
        path = models_dir / name
        path.symlink_to(TINY)
        return path

    return install


Install = Callable[[str], Path]


def test_a_card_s_file_goes_by_its_tag(models_dir: Path, registry: Registry, install: Install) -> None:
    path = install("SmolLM2-135M-Instruct.Q4_1.gguf")
    store = Store(models_dir, registry)
    for name in ("smollm2:135m", "smollm2", path.name, path.stem, str(path)):
        model = store.resolve(name)
        assert (model.tag, model.path, model.card) == ("smollm2:135m", path, registry.cards["smollm2:135m"])


def test_somebody_s_own_file_goes_by_its_name(models_dir: Path, registry: Registry, install: Install) -> None:
    path = install("mine.gguf")
    store = Store(models_dir, registry)
    for name in ("mine", "mine.gguf", str(path)):
        assert store.resolve(name).tag == "mine"
    assert store.resolve("mine").card is None


def test_a_file_of_another_size_is_not_the_card_s(models_dir: Path, install: Install) -> None:
    install("SmolLM2-135M-Instruct.Q4_1.gguf")
    store = Store(models_dir, load_registry())
    assert store.resolve("SmolLM2-135M-Instruct.Q4_1").card is None
    with pytest.raises(ModelNotFound, match=r"smollm2:135m is not installed \(hipfire pull smollm2:135m\)"):
        store.resolve("smollm2")


def test_a_path_runs_without_a_card(models_dir: Path, registry: Registry) -> None:
    model = Store(models_dir, registry).resolve(str(TINY))
    assert (model.tag, model.path, model.card) == (str(TINY), TINY, None)


def test_a_path_is_refused_where_paths_are_not_allowed(models_dir: Path, registry: Registry, install: Install) -> None:
    install("mine.gguf")
    store = Store(models_dir, registry)
    with pytest.raises(ModelNotFound, match="allow_request_paths"):
        store.resolve(str(TINY), allow_paths=False)
    assert store.resolve("mine", allow_paths=False).tag == "mine"


def test_a_file_beside_us_is_a_path_but_not_for_requests(
    models_dir: Path, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "README.md").touch()
    store = Store(models_dir, registry)
    assert store.resolve("README.md").path == tmp_path / "README.md"
    assert store.is_elsewhere("README.md")
    with pytest.raises(ModelNotFound, match="there is no model"):
        store.resolve("README.md", allow_paths=False)


def test_what_a_path_names_may_be_an_installed_model(models_dir: Path, registry: Registry, install: Install) -> None:
    path = install("mine.gguf")
    store = Store(models_dir, registry)
    assert [store.is_elsewhere(name) for name in (str(TINY), "mine", "mine.gguf", "nothing")] == [
        True, False, False, False,
    ]  # fmt: skip
    assert path.is_file()


@pytest.mark.parametrize(
    "name", ["../secret", "../secret.gguf", "/secret.gguf", "a/b", "a\0/b", "x" * 5000 + "/y", ".gguf", ""]
)
def test_no_name_leads_out_of_the_folder(name: str, models_dir: Path, registry: Registry) -> None:
    (models_dir.parent / "secret.gguf").symlink_to(TINY)
    with pytest.raises(ModelNotFound):
        Store(models_dir, registry).resolve(name, allow_paths=False)
    if "secret" not in name:
        with pytest.raises(ModelNotFound):
            Store(models_dir, registry).resolve(name)


def test_an_unknown_name_gets_what_to_do(models_dir: Path, registry: Registry, install: Install) -> None:
    store = Store(models_dir, registry)
    with pytest.raises(ModelNotFound, match=r"there is no model 'q' \(nothing is installed; hipfire list -r shows"):
        store.resolve("q")
    install("mine.gguf")
    with pytest.raises(ModelNotFound, match=r"there is no model 'q' \(installed: mine\)"):
        store.resolve("q")
    with pytest.raises(ModelNotFound, match=r"did you mean smollm2:135m\?"):
        store.resolve("smollm2:136m")
    with pytest.raises(ModelNotFound, match=r"\./nothing\.gguf does not exist"):
        store.resolve("./nothing.gguf")


def test_listing_reads_the_headers(models_dir: Path, registry: Registry, install: Install) -> None:
    install("mine.gguf")
    (listing,) = Store(models_dir, registry).list_installed()
    assert listing.problem is None
    assert listing.details is not None
    assert listing.details.architecture == "llama"
    assert listing.details.nbytes == TINY.stat().st_size
    assert listing.details.context_length > 0


def test_listing_names_what_is_wrong_with_a_file(models_dir: Path, registry: Registry) -> None:
    (models_dir / "broken.gguf").write_bytes(b"GGUF")
    (listing,) = Store(models_dir, registry).list_installed()
    assert listing.details is None
    assert listing.problem is not None
    assert "ends after 4 bytes" in listing.problem


def test_listing_leaves_out_what_is_no_model(models_dir: Path, registry: Registry, install: Install) -> None:
    for name in (".hidden.gguf", "notes.txt", "big-00002-of-00002.gguf"):
        install(name)
    install("big-00001-of-00002.gguf")
    (models_dir / "empty").mkdir()
    (models_dir / "dangling.gguf").symlink_to("nothing")
    (models_dir / "folder.gguf").mkdir()
    store = Store(models_dir, registry)
    assert [listing.model.path.name for listing in store.list_installed()] == ["big-00001-of-00002.gguf"]


def test_a_folder_as_hugging_face_has_it_is_a_model(models_dir: Path, registry: Registry) -> None:
    (models_dir / "org-model-1.5").symlink_to(TINY.parent)
    assert Store(models_dir, registry).resolve("org-model-1.5").path == models_dir / "org-model-1.5"


def test_a_changed_file_is_read_again(models_dir: Path, registry: Registry) -> None:
    path = models_dir / "mine.gguf"
    path.write_bytes(TINY.read_bytes())
    store = Store(models_dir, registry)
    assert store.list_installed()[0].problem is None
    path.write_bytes(b"GGUF")
    os.utime(path, (0, 0))
    assert store.list_installed()[0].problem is not None


def test_a_folder_that_is_not_there_has_no_models(tmp_path: Path, registry: Registry) -> None:
    assert Store(tmp_path / "nothing", registry).list_installed() == []


def own_store(models_dir: Path, registry: Registry, text: str) -> Store:
    path = models_dir.parent / "models.toml"
    path.write_text(text)
    return Store(models_dir, registry, read_own_models(path))


def test_an_alias_stands_for_its_model(models_dir: Path, registry: Registry, install: Install) -> None:
    install("SmolLM2-135M-Instruct.Q4_1.gguf")
    store = own_store(models_dir, registry, '[model."smollm2"]\naliases = ["small", "s"]\ntop_k = 3')
    for name in ("small", "s", "smollm2", "smollm2:135m"):
        model = store.resolve(name, allow_paths=False)
        assert (model.tag, model.aliases) == ("smollm2:135m", ("smollm2", "small", "s"))
        assert model.own is not None
        assert model.own.settings["generation.top_k"].value == 3
        assert store.card_of(name) == registry.cards["smollm2:135m"]
    (listing,) = store.list_installed()
    assert listing.model == store.resolve("small")


def test_an_alias_of_what_is_not_here_says_what_to_pull(models_dir: Path) -> None:
    store = own_store(models_dir, load_registry(), '[model."smollm2:135m"]\naliases = ["small"]')
    with pytest.raises(ModelNotFound, match="hipfire pull smollm2:135m"):
        store.resolve("small")
    expected = store.resolve_or_expect("small")
    assert (expected.tag, expected.path.parent) == ("smollm2:135m", models_dir)
    assert expected.own is not None
    with pytest.raises(ModelNotFound):
        store.resolve_or_expect("nothing")


def test_a_path_of_models_toml_is_a_model_for_requests_too(models_dir: Path, registry: Registry) -> None:
    store = own_store(models_dir, registry, f'[model.writer]\npath = "{TINY}"\naliases = ["w"]\n')
    for name in ("writer", "w"):
        model = store.resolve(name, allow_paths=False)
        assert (model.tag, model.path, model.card) == ("writer", TINY, None)
        assert not store.is_elsewhere(name)
    with pytest.raises(ModelNotFound, match="allow_request_paths"):
        store.resolve(str(TINY), allow_paths=False)
    assert [listing.model.tag for listing in store.list_installed()] == ["writer"]


def test_a_model_named_by_its_path_has_aliases_and_settings(models_dir: Path, registry: Registry) -> None:
    store = own_store(models_dir, registry, f'[model."{TINY}"]\naliases = ["t"]\ntop_k = 3')
    model = store.resolve("t", allow_paths=False)
    assert (model.tag, model.path) == (str(TINY), TINY)
    assert model.own is not None
    assert store.resolve(str(TINY)) == model


def test_a_tag_may_be_somewhere_else(models_dir: Path, registry: Registry) -> None:
    store = own_store(models_dir, registry, f'[model."smollm2:135m"]\npath = "{TINY}"')
    model = store.resolve("smollm2:135m")
    assert (model.path, model.card) == (TINY, registry.cards["smollm2:135m"])
    # Nothing that a pull could help with.
    assert store.card_of("smollm2:135m") is None


def test_a_path_that_leads_nowhere_is_an_error_and_listed_as_broken(models_dir: Path, registry: Registry) -> None:
    store = own_store(models_dir, registry, '[model.gone]\npath = "nothing.gguf"')
    with pytest.raises(
        ModelNotFound,
        match=r"gone is not at .*nothing.gguf \(correct it at .*models.toml:2, or take the entry out there\)",
    ):
        store.resolve("gone")
    (listing,) = store.list_installed()
    assert (listing.details, listing.problem) == (
        None,
        f"{models_dir.parent / 'nothing.gguf'}: No such file or directory",
    )


def test_two_tables_of_one_model_are_an_error(models_dir: Path, registry: Registry) -> None:
    with pytest.raises(ConfigError, match=r"models.toml:4: smollm2:135m is the same model as smollm2"):
        own_store(models_dir, registry, '[model.smollm2]\ntop_k = 1\n[model."smollm2:135m"]\ntop_k = 2')


def test_a_table_of_no_model_is_a_stranger(models_dir: Path, registry: Registry) -> None:
    tables = "[model.smollm2]\ntop_k = 1\n[model.smolm]\ntop_k = 1\n[model.gone]\npath = 'gone'"
    assert [own.name for own in own_store(models_dir, registry, tables).own_strangers()] == ["smolm"]


def test_a_misspelt_name_of_one_s_own_gets_the_nearest(models_dir: Path, registry: Registry, install: Install) -> None:
    install("minerva.gguf")
    store = own_store(models_dir, registry, f'[model.writer]\npath = "{TINY}"\naliases = ["novelist"]\n')
    for name, meant in [("wirter", "writer"), ("novellist", "novelist"), ("minrva", "minerva")]:
        with pytest.raises(ModelNotFound, match=rf"did you mean {meant}\?"):
            store.resolve(name)
