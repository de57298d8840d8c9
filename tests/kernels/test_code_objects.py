"""The GPU objects that are shipped: made from these sources, complete, and what the table of kernels says of them."""

import hashlib
import shutil
from pathlib import Path

import pytest

from hipfire.kernels import build_hip
from hipfire.kernels.build import BuildError
from hipfire.kernels.code_object import read_kernels
from hipfire.kernels.hip_table import KERNELS, SOURCES, TARGETS
from hipfire.kernels.hsaco import FOLDER, code_objects

MAX_NBYTES = 12 << 20


def test_no_object_is_stale() -> None:
    assert build_hip.MANIFEST.read_text().splitlines() == list(build_hip.manifest_lines(FOLDER))


def test_they_are_small_and_no_others_lie_about() -> None:
    files = sorted(FOLDER.rglob("*.hsaco"))
    assert files == sorted(FOLDER / target / f"{source}.hsaco" for target in TARGETS for source in SOURCES)
    assert sum(path.stat().st_size for path in files) < MAX_NBYTES


@pytest.mark.parametrize("target", TARGETS)
def test_every_object_holds_what_the_table_promises(target: str) -> None:
    objects = code_objects(target)
    for source in SOURCES:
        build_hip.check(source, target, read_kernels(objects[source]))


def test_a_change_makes_just_what_includes_it_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {f"{target}/{source}.hsaco" for target in TARGETS for source in SOURCES}
    assert build_hip.fresh_objects() == everything
    shutil.copytree(build_hip.HIP, tmp_path / "hip")
    shutil.copy(build_hip.HERE / "layout.h", tmp_path)
    monkeypatch.setattr(build_hip, "HIP", tmp_path / "hip")
    assert build_hip.fresh_objects() == everything
    with (tmp_path / "hip" / "rows.hip").open("a") as source:
        source.write("\n")
    assert build_hip.fresh_objects() == {name for name in everything if not name.endswith("/rows.hsaco")}
    with (tmp_path / "layout.h").open("a") as header:
        header.write("\n")
    assert build_hip.fresh_objects() == set()


def test_an_object_that_is_not_the_manifests_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(FOLDER, tmp_path / "hsaco")
    monkeypatch.setattr(build_hip, "FOLDER", tmp_path / "hsaco")
    (tmp_path / "hsaco" / "gfx906" / "rows.hsaco").write_bytes(b"another")
    (tmp_path / "hsaco" / "gfx908" / "rows.hsaco").unlink()
    stale = {f"{target}/{source}.hsaco" for target in TARGETS for source in SOURCES} - build_hip.fresh_objects()
    assert stale == {"gfx906/rows.hsaco", "gfx908/rows.hsaco"}


# One of each family; `python -m hipfire.kernels.build_hip --check` does all of them.
@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx906", "gfx942", "gfx1010", "gfx1030", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("source", ["embed", "rows", "attention"])
def test_building_anew_gives_the_same_bytes(source: str, target: str, tmp_path: Path) -> None:
    build_hip.compile_object(source, target, tmp_path / "again.hsaco")
    assert hashlib.sha256((tmp_path / "again.hsaco").read_bytes()).hexdigest() in build_hip.MANIFEST.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["linear", "matrix"])
def test_building_the_largest_anew_gives_the_same_bytes(source: str, tmp_path: Path) -> None:
    build_hip.compile_object(source, "gfx1100", tmp_path / "again.hsaco")
    assert (tmp_path / "again.hsaco").read_bytes() == (FOLDER / "gfx1100" / f"{source}.hsaco").read_bytes()


def test_a_table_that_says_otherwise_fails_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = read_kernels(code_objects("gfx1100")["rows"])
    table = dict(KERNELS)
    table["gather_outputs"] = type(table["gather_outputs"])("rows", 256, "p:x p:output_rows p:out p:n")
    monkeypatch.setattr(build_hip, "KERNELS", table)
    with pytest.raises(BuildError, match="gather_outputs for gfx1100: its arguments are"):
        build_hip.check("rows", "gfx1100", kernels)
    table["gather_outputs"] = type(table["gather_outputs"])("rows", 64, KERNELS["gather_outputs"].signature)
    with pytest.raises(BuildError, match="workgroups of 256, the table says 64"):
        build_hip.check("rows", "gfx1100", kernels)
    del table["gather_outputs"]
    with pytest.raises(BuildError, match="differ in gather_outputs"):
        build_hip.check("rows", "gfx1100", kernels)
