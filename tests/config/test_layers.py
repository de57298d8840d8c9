from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from hipfire.config.environment import Environment, read_environment
from hipfire.config.layers import read_layers, resolve
from hipfire.config.schema import Origin, Settings, Source, Sourced
from hipfire.errors import ConfigError


def settings_from(
    config: str,
    *,
    tmp_path: Path,
    flags: Iterable[tuple[str, str, str]] = (),
    variables: Mapping[str, str] | None = None,
) -> Settings:
    (tmp_path / "config.toml").write_text(config)
    return resolve(environment_in(tmp_path, **(variables or {})), flags=flags)


def environment_in(home: Path, **variables: str) -> Environment:
    return read_environment({"HIPFIRE_HOME": str(home), **variables})


def error_of(config: str, *, tmp_path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        settings_from(config, tmp_path=tmp_path)
    return str(caught.value).replace(str(tmp_path), "")


def test_without_anything_the_built_in_values_hold(tmp_path: Path) -> None:
    assert resolve(environment_in(tmp_path)) == Settings()


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
    assert settings.sourced("serve.max_queue").source == Source(Origin.GLOBAL, f"{tmp_path}/config.toml:4")
    assert settings.serve.default_model == "auto"


@pytest.mark.parametrize(
    "config",
    ["serve.port = 5", "[serve]\nport = 5", "serve = { port = 5 }", '[ serve ]\n  "port"=5', "['serve']\nport = 5"],
)
def test_every_way_to_write_a_key_is_read_and_found(config: str, tmp_path: Path) -> None:
    settings = settings_from(config, tmp_path=tmp_path)
    assert settings.serve.port == 5
    assert settings.sources["serve.port"].place == f"{tmp_path}/config.toml:{len(config.splitlines())}"


def test_the_last_part_of_a_key_is_enough(tmp_path: Path) -> None:
    settings = settings_from("port = 5\n[generation]\ntop_p = 0.5", tmp_path=tmp_path)
    assert (settings.serve.port, settings.generation.top_p) == (5, 0.5)
    assert settings.sourced("serve.port").source.place == f"{tmp_path}/config.toml:1"


def test_a_key_without_a_dot_stands_above_the_tables(tmp_path: Path) -> None:
    config = "thinking = 'off'\nmax_think_tokens = 7\n[serve]\nport = 5"
    settings = settings_from(config, tmp_path=tmp_path, variables={"HIPFIRE_REASONING_EFFORT": "low"})
    assert (settings.reasoning.thinking, settings.reasoning.max_think_tokens) == ("off", 7)
    assert settings.reasoning.reasoning_effort == "low"
    assert settings.sourced("max_think_tokens").source.place == f"{tmp_path}/config.toml:2"


def test_a_layer_gives_way_to_stronger_values_only(tmp_path: Path) -> None:
    settings = settings_from("generation.top_p = 0.5", tmp_path=tmp_path)
    card = Source(Origin.CARD, "the card of smollm2:135m")
    layered = settings.with_layer(
        {"generation.top_p": Sourced(0.9, card), "generation.temperature": Sourced(0.2, card)}
    )
    assert (layered.generation.top_p, layered.generation.temperature) == (0.5, 0.2)
    assert layered.sourced("generation.temperature").source == card
    assert settings.generation.temperature == 0.3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("\n[serve]\nprot = 1", "/config.toml:3: there is no setting serve.prot (did you mean serve.port?)"),
        (
            "[serve]\nthinking = 'on'",
            "/config.toml:2: there is no setting serve.thinking (did you mean thinking?)",
        ),
        ("prot = 1", "/config.toml:1: there is no setting prot (did you mean serve.port?)"),
        ("serve = 1", "/config.toml:1: there is no setting serve (a table: [serve])"),
        ("port = 1\n[serve]\nport = 2", "/config.toml:3: serve.port is set a second time (first at /config.toml:1)"),
        (
            "[sampling]\ntemperature = 1",
            "/config.toml:2: there is no setting sampling.temperature (did you mean generation.temperature?)",
        ),
        ("[serve]\n\nport = '1'", "/config.toml:3: serve.port must be a whole number from 1 to 65535, not '1'"),
        ("[serve\nport = 1", "/config.toml:1:7: expected ']' at the end of a table declaration"),
    ],
)
def test_an_error_names_the_line_and_what_to_write(config: str, message: str, tmp_path: Path) -> None:
    assert error_of(config, tmp_path=tmp_path) == message


def test_an_unlike_key_gets_the_list(tmp_path: Path) -> None:
    assert "known are: serve.host" in error_of("zzz = 1", tmp_path=tmp_path)


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"config\.toml:1: this is not UTF-8"):
        resolve(environment_in(tmp_path))


def test_a_bad_variable_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"HIPFIRE_PORT: serve\.port must be .*, not 'x'"):
        settings_from("", tmp_path=tmp_path, variables={"HIPFIRE_PORT": "x"})


def profile(home: Path, name: str, text: str) -> None:
    (home / "profiles").mkdir(exist_ok=True)
    (home / "profiles" / f"{name}.toml").write_text(text)


def test_a_profile_beats_the_file_and_no_variable(tmp_path: Path) -> None:
    profile(tmp_path, "quick", "[serve]\nport = 2\nmax_queue = 2\nhost = 'b'")
    settings = settings_from(
        "profile = 'quick'\nserve = { port = 1, max_queue = 1, drain_timeout = 1 }",
        tmp_path=tmp_path,
        variables={"HIPFIRE_HOST": "c"},
    )
    serve = settings.serve
    assert (serve.port, serve.max_queue, serve.drain_timeout, serve.host) == (2, 2, 1.0, "c")
    assert settings.sourced("serve.port").source == Source(Origin.PROFILE, f"{tmp_path}/profiles/quick.toml:2")


def test_a_variable_chooses_another_profile_or_none(tmp_path: Path) -> None:
    profile(tmp_path, "quick", "port = 2")
    profile(tmp_path, "slow", "port = 3")
    config = "profile = 'quick'\nport = 1"
    chosen = [
        settings_from(config, tmp_path=tmp_path, variables={"HIPFIRE_PROFILE": name}).serve.port
        for name in ("slow", "none", "")
    ]
    assert chosen == [3, 1, 2]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quik", "/config.toml:1: there is no profile quik (did you mean quick?)"),
        ("zzz", "/config.toml:1: there is no profile zzz (there are: broken, chain, quick)"),
        ("../quick", "/config.toml:1: '../quick' is no name for a profile (letters, digits, - and _, and not none)"),
        ("broken", "/profiles/broken.toml:2: there is no setting serve.prot (did you mean serve.port?)"),
        ("chain", "/profiles/chain.toml:1: a profile cannot name a profile"),
    ],
)
def test_an_unusable_profile_is_an_error(name: str, message: str, tmp_path: Path) -> None:
    profile(tmp_path, "quick", "port = 2")
    profile(tmp_path, "broken", "[serve]\nprot = 2")
    profile(tmp_path, "chain", "profile = 'quick'")
    assert error_of(f"profile = {name!r}", tmp_path=tmp_path) == message


def test_candidates_are_in_order_of_precedence(tmp_path: Path) -> None:
    profile(tmp_path, "quick", "top_k = 4")
    (tmp_path / "config.toml").write_text("profile = 'quick'\ntop_k = 3")
    layers = read_layers(environment_in(tmp_path, HIPFIRE_TOP_K="6"), flags=[("generation.top_k", "7", "--top-k")])
    for origin in (Origin.MODEL, Origin.MODEL_FILE, Origin.CARD):
        layers = layers.with_layer({"generation.top_k": Sourced(int(origin), Source(origin, "there"))})
    candidates = layers.candidates("generation.top_k")
    assert [*candidates] == sorted(Origin, reverse=True)
    assert [value.value for value in candidates.values()] == [7, 6, 5, 4, 3, 2, 1, 20]
    assert layers.settings().generation.top_k == 7
    assert [*layers.candidates("serve.port")] == [Origin.BUILTIN]
