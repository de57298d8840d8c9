"""The API key with which commands ask a serve of this machine."""

from hipfire.config.environment import Environment
from hipfire.config.layers import resolve
from hipfire.config.schema import Settings
from hipfire.errors import ConfigError


def key_of(settings: Settings) -> str | None:
    """The first of the keys that a serve with these settings asks for; None where it asks for none."""
    return next(iter(settings.serve.api_keys), None)


def known_key(environment: Environment) -> str | None:
    """The key in the settings, for commands that work without any: a mistake in config.toml is reported elsewhere."""
    try:
        return key_of(resolve(environment))
    except ConfigError:
        return None
