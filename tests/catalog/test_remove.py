from pathlib import Path

import pytest

from hipfire.catalog.remove import files_of, nbytes_of, remove
from hipfire.catalog.store import InstalledModel
from hipfire.errors import ModelFileError


def model_at(path: Path) -> InstalledModel:
    return InstalledModel(tag=path.name, path=path)


def test_a_split_model_goes_with_all_its_parts_the_first_last(tmp_path: Path) -> None:
    parts = [tmp_path / f"m-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    other = tmp_path / "n-00002-of-00003.gguf"
    for path in (*parts, other):
        path.write_bytes(b"x" * 10)
    files = files_of(model_at(parts[0]), tmp_path)
    assert files == parts[::-1]
    assert sum(nbytes_of(path) for path in files) == 30
    remove(files)
    assert list(tmp_path.iterdir()) == [other]


def test_a_folder_goes_whole_and_what_it_links_to_stays(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"x" * 10)
    folder = tmp_path / "models" / "m"
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(b"{}")
    (folder / "weights").symlink_to(outside)
    files = files_of(model_at(folder), folder.parent)
    assert (files, nbytes_of(folder)) == ([folder], 2)
    remove(files)
    assert not folder.exists()
    assert outside.exists()


def test_what_cannot_be_deleted_is_said() -> None:
    with pytest.raises(ModelFileError, match="cannot delete /proc/version"):
        remove([Path("/proc/version")])
