from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hipfire.config.layers import resolve, with_card
from hipfire.config.schema import Origin, Settings, Source
from hipfire.errors import ConfigError


def settings_from(
    config: str,
    *,
    tmp_path: Path,
    flags: Iterable[tuple[str, str, str]] = (),
    variables: Mapping[str, str] | None = None,
) -> Settings:
    path = tmp_path / "config.toml"
    path.write_text(config)
    return resolve(flags=flags, variables=variables or {}, config_file=path)


def error_of(config: str, *, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_from(config, tmp_path=tmp_path)
    return str(caught.value).replace(str(tmp_path), "")


def test_without_anything_the_built_in_values_hold(tmp_path: Path) -> None:
    assert resolve(flags=(), variables={}, config_file=tmp_path / "config.toml") == Settings()


def test_a_flag_beats_the_environment_beats_the_file(tmp_path: Path) -> None:
    settings = settings_from(
        "[serve]\nhost = 'a'\nport = 1\nmax_queue = 7\n",
        tmp_path=tmp_path,
        variables={"HIPFIRE_HOST": "b", "HIPFIRE_PORT": "2", "HIPFIRE_MODEL": ""},
        flags=[("serve.port", "3", "--port")],
    )
    assert (settings.serve.host, settings.serve.port, settings.serve.max_queue) == ("b", 3, 7)
    assert settings.sourced("serve.port").source == Source(Origin.FLAG, "--port")
    assert settings.sourced("serve.host").source == Source(Origin.ENVIRONMENT, "HIPFIRE_HOST")
    assert settings.sourced("serve.max_queue").source == Source(Origin.FILE, f"{tmp_path}/config.toml:4")
    assert settings.serve.default_model == "auto"


@pytest.mark.parametrize(
    "config",
    ["serve.port = 5", "[serve]\nport = 5", "serve = { port = 5 }", '[ serve ]\n  "port"=5', "['serve']\nport = 5"],
)
def test_every_way_to_write_a_key_is_read_and_found(config: str, tmp_path: Path) -> None:
    settings = settings_from(config, tmp_path=tmp_path)
    assert settings.serve.port == 5
    assert settings.sources["serve.port"].place == f"{tmp_path}/config.toml:{len(config.splitlines())}"


def test_a_key_without_a_dot_stands_above_the_tables(tmp_path: Path) -> None:
    config = "thinking = 'off'\nmax_think_tokens = 7\n[serve]\nport = 5"
    settings = settings_from(config, tmp_path=tmp_path, variables={"HIPFIRE_REASONING_EFFORT": "low"})
    assert (settings.reasoning.thinking, settings.reasoning.max_think_tokens) == ("off", 7)
    assert settings.reasoning.reasoning_effort == "low"
    assert settings.sourced("max_think_tokens").source.place == f"{tmp_path}/config.toml:2"


def test_a_card_replaces_built_in_values_only(tmp_path: Path) -> None:
    settings = settings_from("generation.top_p = 0.5", tmp_path=tmp_path)
    with_recommendations = with_card(
        settings, {"generation.top_p": 0.9, "generation.temperature": 0.2}, tag="smollm2:135m"
    )
    assert with_recommendations.generation.top_p == 0.5
    assert with_recommendations.generation.temperature == 0.2
    assert with_recommendations.sourced("generation.temperature").source.origin == Origin.CARD
    assert settings.generation.temperature == 0.3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("\n[serve]\nprot = 1", "/config.toml:3: there is no setting serve.prot (did you mean serve.port?)"),
        (
            "[serve]\nthinking = 'on'",
            "/config.toml:2: there is no setting serve.thinking (did you mean thinking?)",
        ),
        ("port = 1", "/config.toml:1: there is no setting port (did you mean serve.port?)"),
        (
            "[sampling]\ntemperature = 1",
            "/config.toml:2: there is no setting sampling.temperature (did you mean generation.temperature?)",
        ),
        ("[serve]\n\nport = '1'", "/config.toml:3: serve.port must be a whole number from 1 to 65535, not '1'"),
        ("[serve\nport = 1", "/config.toml: Expected ']' at the end of a table declaration (at line 1, column 7)"),
    ],
)
def test_an_error_names_the_line_and_what_to_write(config: str, message: str, tmp_path: Path) -> None:
    assert error_of(config, tmp_path=tmp_path) == message


def test_an_unlike_key_gets_the_list(tmp_path: Path) -> None:
    assert "known are: serve.host" in error_of("zzz = 1", tmp_path=tmp_path)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot read"):
        resolve(flags=(), variables={}, config_file=path)


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"HIPFIRE_PORT: serve\.port must be .*, not 'x'"):
        settings_from("", tmp_path=tmp_path, variables={"HIPFIRE_PORT": "x"})
