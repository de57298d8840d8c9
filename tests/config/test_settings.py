import attrs
import pytest

from hipfire.config.schema import BUILTIN, SETTINGS, Origin, Settings, Source, Sourced
from hipfire.config.values import check


def test_every_default_fits_its_own_declaration() -> None:
    for declared in SETTINGS.values():
        if declared.default is not None:
            assert check(declared, declared.default) == declared.default


def test_every_setting_has_a_meaning_and_a_variable_of_its_own() -> None:
    assert all(declared.doc.endswith(".") for declared in SETTINGS.values())
    variables = [declared.env for declared in SETTINGS.values()]
    assert len(set(variables)) == len(variables)


def test_settings_are_built_in_until_replaced() -> None:
    flag = Source(Origin.FLAG, "--port")
    settings = Settings().replaced({"serve.port": Sourced(80, flag)})

    assert settings.serve.port == 80
    assert settings.sourced("serve.port") == Sourced(80, flag)
    assert settings.sourced("serve.host") == Sourced("127.0.0.1", BUILTIN)
    assert Settings().serve.port == 11435


def test_settings_cannot_be_changed_in_place() -> None:
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Settings().serve.port = 1  # type: ignore[misc]
