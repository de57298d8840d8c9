import os
import stat
import threading
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hipfire.config.edit import change_file, remove_from, set_in
from hipfire.config.toml_file import KeyPath, read_entries
from hipfire.errors import ConfigError


def set_one(path: Path, key: KeyPath, value: object) -> None:
    change_file(path, lambda _, document: set_in(document, key, value))


def remove_one(path: Path, key: KeyPath) -> None:
    change_file(path, lambda _, document: remove_from(document, [key]))


TEXT = """# on top
[serve]   # about serving
port = 1  # one

# about the host
host = "a"

[log]
level = 'info'
"""


def test_comments_order_and_spelling_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text(TEXT)
    set_one(path, ("serve", "port"), 2)
    assert path.read_text() == TEXT.replace("port = 1", "port = 2")
    remove_one(path, ("log", "level"))
    assert path.read_text() == TEXT.replace("port = 1", "port = 2").replace("[log]\nlevel = 'info'\n", "")


def test_a_table_that_has_a_comment_left_stays(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("[serve]\n# why\nport = 1\n")
    remove_one(path, ("serve", "port"))
    assert path.read_text() == "[serve]\n# why\n"


@pytest.mark.parametrize("bom", ["", "\ufeff"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_and_byte_order_mark_stay(bom: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_bytes(f"{bom}# c{end}[serve]{end}port = 1{end}".encode())
    set_one(path, ("serve", "host"), "b")
    set_one(path, ("log", "level"), "info")
    expected = f'{bom}# c{end}[serve]{end}port = 1{end}host = "b"{end}{end}[log]{end}level = "info"{end}'
    assert path.read_bytes() == expected.encode()


def test_mode_and_link_stay_and_a_new_file_is_private(tmp_path: Path) -> None:
    real, link, new = tmp_path / "dotfiles" / "config.toml", tmp_path / "config.toml", tmp_path / "a" / "new.toml"
    real.parent.mkdir()
    real.write_text("a = 1\n")
    real.chmod(0o640)
    link.symlink_to(real)
    set_one(link, ("b",), 2)
    assert link.is_symlink()
    assert real.read_text() == "a = 1\nb = 2\n"
    assert stat.S_IMODE(real.stat().st_mode) == 0o640
    set_one(new, ("b",), 2)
    assert stat.S_IMODE(new.stat().st_mode) == 0o600


def test_changes_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    threads = [threading.Thread(target=set_one, args=(path, ("serve", f"k{i}"), i)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tomllib.loads(path.read_text()) == {"serve": {f"k{i}": i for i in range(20)}}
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.toml.lock", "config.toml"]


def test_a_write_that_fails_leaves_the_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = 1\n")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match=r"cannot write .*config.toml: No space left on device \(HIPFIRE_HOME"):
        set_one(path, ("a",), 2)
    assert path.read_text() == "a = 1\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".config.toml.lock", "config.toml"]


def test_what_is_no_toml_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("a = \n")
    with pytest.raises(ConfigError, match=r"config\.toml:1:5"):
        set_one(path, ("a",), 2)
    assert path.read_text() == "a = \n"


_PIECES = (
    *("# c", "", "top = 1", "serve.port = 1", "serve = { port = 1 }", "[serve]", "port = 2", "[log]", "level = 'x'"),
    *("[serve.x]", "y = 1", '[model."q:1.5"]', "generation.top_k = 3", "s = '''\n[log]\n'''", "l = [\n1,\n]"),
)
_LINES = st.lists(st.sampled_from(_PIECES), max_size=8)
_KEYS = st.sampled_from(
    [("top",), ("serve", "port"), ("log", "level"), ("model", "q:1.5", "generation", "top_k"), ("new", "key")]
)


@settings(max_examples=60, deadline=None)
@given(lines=_LINES, key=_KEYS)
def test_whatever_is_in_the_file_one_key_changes_and_goes(
    lines: list[str], key: KeyPath, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text("\n".join(lines))
    try:
        before = {entry.path: entry.value for entry in read_entries(path)}
    except ConfigError:
        return
    if any(key[:n] in before for n in range(1, len(key))) or any(k[: len(key)] == key and k != key for k in before):
        return
    set_one(path, key, 77)
    assert {entry.path: entry.value for entry in read_entries(path)} == {**before, key: 77}
    remove_one(path, key)
    assert {entry.path: entry.value for entry in read_entries(path)} == {k: v for k, v in before.items() if k != key}
