from pathlib import Path

import pytest

from hipfire.config.own_models import read_own_models
from hipfire.config.schema import Origin, Source, Sourced
from hipfire.errors import ConfigError


def models_file(text: str, tmp_path: Path) -> Path:
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


def test_a_table_has_a_path_aliases_and_settings(tmp_path: Path) -> None:
    path = models_file(
        '[model."smollm2:135m"]\naliases = ["small"]\ngeneration.temperature = 0.7\n'
        '[model.writer]\npath = "files/w.gguf"\n[model.writer.memory]\nmax_seq = 4096\n',
        tmp_path,
    )
    models = read_own_models(path)
    small, writer = models["smollm2:135m"], models["writer"]
    assert (small.aliases, small.path) == (("small",), None)
    assert small.settings == {"generation.temperature": Sourced(0.7, Source(Origin.MODEL, f"{path}:3"))}
    assert writer.path == tmp_path / "files" / "w.gguf"
    assert writer.settings["memory.max_seq"].source.place == f"{path}:7"


def test_paths_may_begin_in_the_home_folder_and_keys_may_be_short(tmp_path: Path) -> None:
    path = models_file('[model]\nhome = { path = "~/h.gguf", thinking = "off", top_k = 3 }', tmp_path)
    home = read_own_models(path)["home"]
    assert home.path == Path.home() / "h.gguf"
    assert {key: value.value for key, value in home.settings.items()} == {"thinking": "off", "generation.top_k": 3}


def test_without_a_file_there_are_none(tmp_path: Path) -> None:
    assert read_own_models(tmp_path / "models.toml") == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[modle.x]\npath = 'a'", "2: modle.x.path is in no model's table (did you mean [model.…]?)"),
        ("zzz = 1", """1: zzz is in no model's table (a table begins with its model: [model."TAG"])"""),
        ("[model]\nx = 1", """2: model.x is in no model's table (a table begins with its model: [model."TAG"])"""),
        ("[model.x]\nserve.port = 1", "2: serve.port is the same for every model (set it in config.toml, not for x)"),
        ("[model.x]\npaht = 'a'", "2: there is no setting paht (did you mean path?)"),
        ("[model.x]\ntop_q = 1", "2: there is no setting top_q (did you mean generation.top_p?)"),
        (
            "[model.qwen3.5]\nmemory.max_seq = 600",
            """2: there is no setting 5.memory.max_seq (quote a name with dots or colons: [model."qwen3.5:9b"])""",
        ),
        ("[model.x]\npath = 1", "2: path must be the path of a model, not 1"),
        ("[model.x]\npath = ''", "2: path must be the path of a model, not ''"),
        ("[model.x]\naliases = 'a'", "2: aliases must be a list of names, not 'a'"),
        ("[model.x]\naliases = ['']", "2: aliases must be a list of names, not ['']"),
        ("[model.x]\ntop_p = 2", "2: generation.top_p must be a number above 0 and up to 1, not 2.0"),
        (
            "[model.x]\naliases = ['a']\n[model.y]\naliases = ['a']",
            "4: the alias a of y also stands for x",
        ),
        ("[model.x]\naliases = ['y']\n[model.y]\ntop_k = 1", "2: the alias y of x also stands for y"),
    ],
)
def test_a_mistake_is_told_with_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = models_file(text, tmp_path)
    with pytest.raises(ConfigError) as caught:
        read_own_models(path)
    assert str(caught.value).removeprefix(f"{path}:") == message
