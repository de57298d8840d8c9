import math

import pytest

from hipfire.config.schema import SETTINGS
from hipfire.config.values import BadValue, check, parse, shown, text_of


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("serve.port", 80, 80),
        ("serve.idle_timeout", 5, 5.0),
        ("generation.top_p", 1.0, 1.0),
        ("generation.top_k", -1, -1),
        ("memory.max_seq", "auto", None),
        ("memory.max_seq", 4096, 4096),
        ("memory.prefix_cache_bytes", "auto", None),
        ("memory.prefix_cache_bytes", 0, 0),
        ("memory.prefix_cache_bytes", 1 << 40, 1 << 40),
        ("prompt.system", "auto", "auto"),
        ("serve.allowed_hosts", ["a", "b"], ("a", "b")),
        ("thinking", "off", "off"),
        ("thinking_budget", "med", "med"),
        ("hardware.device", "hip:0", "hip:0"),
        ("hardware.device", "gfx1100", "gfx1100"),
        ("hardware.device", "gfx90a", "gfx90a"),
        ("hardware.device", "0000:03:00.0", "0000:03:00.0"),
        ("hardware.device", "GPU-0123456789abcdef", "GPU-0123456789abcdef"),
    ],
)
def test_a_fitting_value_is_taken(key: str, value: object, expected: object) -> None:
    taken = check(SETTINGS[key], value)
    assert taken == expected
    assert type(taken) is type(expected)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("serve.port", "80"),
        ("serve.port", 80.0),
        ("serve.port", True),
        ("serve.port", 0),
        ("serve.port", 65536),
        ("serve.host", 1),
        ("serve.allow_request_paths", 1),
        ("serve.allowed_hosts", "a"),
        ("serve.allowed_hosts", [1]),
        ("generation.top_p", 0),
        ("generation.temperature", math.nan),
        ("generation.temperature", True),
        ("memory.kv_cache", "q4"),
        ("memory.max_seq", "all"),
        ("memory.prefix_cache_bytes", (1 << 40) + 1),
        ("memory.prefix_cache", "auto"),
        ("thinking", False),
        ("reasoning_effort", "most"),
        ("thinking_budget", 512),
        ("max_think_tokens", -1),
        ("hardware.device", "hip"),
        ("hardware.device", "hip:"),
        ("hardware.device", "cpu:0"),
        ("hardware.device", "gfx"),
        ("hardware.device", "0000:03:00"),
    ],
)
def test_another_type_or_range_is_refused(key: str, value: object) -> None:
    with pytest.raises(BadValue, match="must be"):
        check(SETTINGS[key], value)


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("serve.port", " 80 ", 80),
        ("serve.idle_timeout", "0.5", 0.5),
        ("serve.allow_request_paths", "Yes", True),
        ("serve.allow_request_paths", "0", False),
        ("serve.allowed_hosts", "a, b,", ("a", "b")),
        ("memory.max_seq", "AUTO", None),
        ("prompt.system", " kept as is ", " kept as is "),
    ],
)
def test_text_stands_for_a_value(key: str, text: str, expected: object) -> None:
    assert parse(SETTINGS[key], text) == expected


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("serve.port", "http", "must be a whole number from 1 to 65535, not 'http'"),
        ("serve.port", "1e3", "must be a whole number from 1 to 65535, not '1e3'"),
        ("serve.allow_request_paths", "maybe", "must be true or false, not 'maybe'"),
        ("generation.top_p", "0", "must be a number above 0 and up to 1, not 0.0"),
        ("memory.max_seq", "12", "must be a whole number from 512 to 1048576, or auto, not 12"),
        (
            "hardware.device",
            "gpu",
            "must be one of auto, cpu, reference, hip:N, gfxNNNN, a PCI address, a UUID, not 'gpu'",
        ),
    ],
)
def test_other_text_is_refused_with_what_would_fit(key: str, text: str, message: str) -> None:
    with pytest.raises(BadValue) as caught:
        parse(SETTINGS[key], text)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [1 << 20_000, "9" * 5000, ["x"] * 5000], ids=["number", "text", "list"])
def test_what_is_long_is_not_told_whole(value: object) -> None:
    with pytest.raises(BadValue) as caught:
        check(SETTINGS["serve.port"], value)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("serve.port", 80, "80"),
        ("generation.top_p", 0.95, "0.95"),
        ("generation.temperature", 0.0, "0"),
        ("serve.allow_request_paths", True, "true"),
        ("serve.allowed_hosts", ("a", "b"), "a,b"),
        ("memory.max_seq", None, "auto"),
        ("memory.prefix_cache_bytes", 1 << 40, "1099511627776"),
        ("prompt.system", "Be brief.\nOr not.", "Be brief.\nOr not."),
    ],
)
def test_a_value_s_text_stands_for_it(key: str, value: object, text: str) -> None:
    setting = SETTINGS[key]
    assert text_of(setting, value) == shown(setting, value) == text
    assert parse(setting, text) == value


def test_a_text_that_is_not_set_is_empty_and_a_secret_is_counted() -> None:
    assert text_of(SETTINGS["prompt.system"], None) == ""
    assert shown(SETTINGS["serve.api_keys"], ("sk-1", "sk-2")) == "(2 hidden)"
    assert shown(SETTINGS["serve.api_keys"], ()) == ""
