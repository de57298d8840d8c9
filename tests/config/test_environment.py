from pathlib import Path

from hipfire.config.environment import read_environment


def test_the_state_root_is_in_the_home_folder() -> None:
    environment = read_environment({})
    assert environment.home == Path.home() / ".hipfire"
    assert environment.models_dir == Path.home() / ".hipfire" / "models"
    assert environment.config_file == Path.home() / ".hipfire" / "config.toml"
    assert (environment.debug, environment.local) == (False, False)


def test_variables_move_it(tmp_path: Path) -> None:
    environment = read_environment({"HIPFIRE_HOME": str(tmp_path), "HIPFIRE_LOCAL": "1", "HIPFIRE_DEBUG": "0"})
    assert environment.models_dir == tmp_path / "models"
    assert environment.pidfile == tmp_path / "serve.pid"
    assert (environment.debug, environment.local) == (False, True)


def test_models_may_live_elsewhere(tmp_path: Path) -> None:
    environment = read_environment({"HIPFIRE_HOME": str(tmp_path), "HIPFIRE_MODELS_DIR": "~/elsewhere"})
    assert environment.models_dir == Path.home() / "elsewhere"
