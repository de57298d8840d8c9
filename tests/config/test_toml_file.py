from pathlib import Path

import pytest

from hipfire.config.toml_file import read_entries
from hipfire.errors import ConfigError


def lines_in(text: str, tmp_path: Path) -> dict[str, int]:
    path = tmp_path / "file.toml"
    path.write_bytes(text.encode())
    return {".".join(entry.path): int(entry.place.rpartition(":")[2]) for entry in read_entries(path)}


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a = 1\n\nb.c = 2", {"a": 1, "b.c": 3}),
        ("a = 1\r\n[b]\r\nc = 2\r\n", {"a": 1, "b.c": 3}),
        ("\ufeffa = 1", {"a": 1}),
        ("[t]\n# a = 0\n'a' = 1\n\"b\" = 2", {"t.a": 3, "t.b": 4}),
        ('[model."x:1.5"]\na.b = 1', {"model.x:1.5.a.b": 2}),
        ("x = { a = 1, b = { c = 2 } }", {"x.a": 1, "x.b.c": 1}),
        ('s = """\nz = 0\n[t]\n"""\nz = 1', {"s": 1, "z": 5}),
        ("s = '''\n\"\"\"\nz = 0\n'''\nz = 1", {"s": 1, "z": 5}),
        ('s = """one line"""\nz = 1', {"s": 1, "z": 2}),
        ('l = [\n  "b = 1",\n  "c",\n]\nb = 2', {"l": 1, "b": 5}),
        ("l = '\u2028'\nb = 2", {"l": 1, "b": 2}),
        ("[a]\n[a.b]\nc = 1\n[d]\ne = 2", {"a.b.c": 3, "d.e": 5}),
    ],
)
def test_every_value_has_its_line(text: str, lines: dict[str, int], tmp_path: Path) -> None:
    assert lines_in(text, tmp_path) == lines


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a = 1\nb = \n", ":2:5: invalid value"),
        (b"a = 1\na = 2\n", ":2:6: cannot overwrite a value"),
        (b'a = "x', ":1:7: unterminated string"),
        (b"a = 1\n\xe9 = 2", ":2: this is not UTF-8 (save the file as UTF-8)"),
        (b"a = " + b"[" * 3000, ": this is nested too deeply"),
        (b"a = " + b"9" * 5000, ": a number in it has too many digits"),
    ],
)
def test_what_is_no_toml_is_told_with_its_place(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "file.toml"
    path.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        read_entries(path)
    assert str(caught.value) == f"{path}{message}"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*: Is a directory"):
        read_entries(tmp_path)


def test_a_file_that_is_not_there_has_nothing(tmp_path: Path) -> None:
    assert read_entries(tmp_path / "file.toml") == []
