import attrs
import pytest

from hipfire.config.schema import ALIASES, BUILTIN, SETTINGS, Origin, Settings, Source, Sourced, key_of
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


def test_the_last_part_of_a_key_stands_for_it_and_for_nothing_else() -> None:
    assert (key_of("port"), key_of("serve.port"), key_of("thinking"), key_of("serve")) == (
        "serve.port",
        "serve.port",
        "thinking",
        None,
    )
    groups = {setting.group for setting in SETTINGS.values()}
    assert not groups & {*ALIASES}
    assert not {"path", "aliases"} & {*ALIASES, *SETTINGS}


# The table of settings that hipfire promises: key, default, and the ends of its range.
PROMISED = """
serve.host 127.0.0.1
serve.port 11435 1 65535
serve.default_model auto
serve.idle_timeout 300.0 0 86400
serve.max_request_bytes 67108864 4096 4294967296
serve.max_queue 64 0 100000
serve.queue_timeout_ms 600000 0 3600000
serve.max_concurrent 1 1 256
serve.drain_timeout 30.0 0 3600
serve.stream_stall_timeout 30.0 0 3600
serve.allow_request_pull False
serve.allow_request_paths False
serve.api_keys ()
serve.cors_origins ()
serve.allowed_hosts ()
serve.certfile None
serve.keyfile None
generation.temperature 0.3 0 2
generation.top_p 0.8 0 1
generation.top_k 20 -1 1000000
generation.min_p 0.0 0 1
generation.repeat_penalty 1.05 0 2
generation.presence_penalty 0.0 -2 2
generation.frequency_penalty 0.0 -2 2
generation.max_tokens 4096 1 393216
thinking on
reasoning_effort auto
thinking_budget None
max_think_tokens 0 0 1048576
memory.max_seq None 512 1048576
memory.kv_cache auto
memory.prefix_cache True
memory.prefix_cache_bytes None 0 1099511627776
prompt.system None
prompt.normalize False
prompt.chat_template None
hardware.device auto
hardware.threads None 1 1024
log.level info
profile none
"""


def test_defaults_and_ranges_are_as_promised() -> None:
    promised = {key: rest for key, *rest in map(str.split, PROMISED.strip().splitlines())}
    for key, (default, *ends) in promised.items():
        within = SETTINGS[key].within
        assert str(SETTINGS[key].default) == default
        assert ([] if within is None else [f"{within.low:.15g}", f"{within.high:.15g}"]) == ends
