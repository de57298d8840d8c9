"""The environment variables that are no settings: where hipfire keeps its files, and how it talks to people.

This package is the only one that looks at the environment; everyone else is handed an `Environment`.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import attrs

from hipfire.config.values import read_bool
from hipfire.errors import ConfigError


@attrs.frozen(kw_only=True)
class Environment:
    """`variables` is what the settings' own variables are looked up in."""

    home: Path
    """State root: config, models, pidfile. HIPFIRE_HOME, else ~/.hipfire."""
    models_dir: Path
    """HIPFIRE_MODELS_DIR, else `models` in the state root."""
    debug: bool
    """HIPFIRE_DEBUG=1: unexpected errors come with a traceback."""
    local: bool
    """HIPFIRE_LOCAL=1: `run` never goes through a serve that is up."""
    no_color: bool
    """NO_COLOR, whatever its value: no colours, on terminals either."""
    variables: Mapping[str, str]

    @property
    def config_file(self) -> Path:
        return self.home / "config.toml"

    @property
    def models_file(self) -> Path:
        """Names, paths and settings of models."""
        return self.home / "models.toml"

    @property
    def profiles_dir(self) -> Path:
        return self.home / "profiles"

    @property
    def pidfile(self) -> Path:
        return self.home / "serve.pid"

    @property
    def log_file(self) -> Path:
        """What a serve in the background says."""
        return self.home / "serve.log"

    @property
    def notify_socket(self) -> str | None:
        """Where systemd wants to hear that a service of Type=notify is ready."""
        return self.variables.get("NOTIFY_SOCKET") or None


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Look the variables up. An empty one counts as not set. Raises ConfigError."""
    home = Path(variables.get("HIPFIRE_HOME") or Path.home() / ".hipfire").expanduser().absolute()
    models_dir = variables.get("HIPFIRE_MODELS_DIR")
    return Environment(
        home=home,
        models_dir=Path(models_dir).expanduser().absolute() if models_dir else home / "models",
        debug=_is_on(variables, "HIPFIRE_DEBUG"),
        local=_is_on(variables, "HIPFIRE_LOCAL"),
        no_color=bool(variables.get("NO_COLOR")),
        variables=dict(variables),
    )


def _is_on(variables: Mapping[str, str], name: str) -> bool:
    text = variables.get(name) or "0"
    try:
        return read_bool(text.strip())
    except KeyError:
        raise ConfigError(f"{name} must be true or false, not {text!r}") from None
