"""Finding and loading the runtime library; and the real one, of ROCm 5.2, where it is installed."""

import ctypes.util
import os
from pathlib import Path

import pytest

from hipfire.hip import library as hip_library
from hipfire.hip.functions import FUNCTIONS
from hipfire.hip.graph import graph_fault
from hipfire.hip.library import HipLibrary, NoHip, library_paths, open_library, why_no_device

REAL = "libamdhip64.so.5"


@pytest.fixture(scope="session")
def real() -> HipLibrary:
    try:
        ctypes.CDLL(REAL)
    except OSError:
        message = f"{REAL} is not installed: apt-get install libamdhip64-5"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return HipLibrary(REAL)


def test_the_real_library_has_all_that_is_not_optional(real: HipLibrary) -> None:
    missing = [name for name in FUNCTIONS if not real.has(name)]
    assert all(FUNCTIONS[name].optional for name in missing)
    # What came with ROCm 6.
    assert missing == ["hipGetDevicePropertiesR0600"]


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has a GPU")
def test_the_real_library_says_that_there_is_no_device(real: HipLibrary) -> None:
    assert real.n_devices() == 0


def test_graphs_of_the_real_library_are_too_old(real: HipLibrary) -> None:
    assert graph_fault(real, "gfx1030") == "those of HIP 5.2.21153 lose kernels' arguments"


class OfVersion(HipLibrary):
    """A library that has everything, in some version."""

    def __init__(self, *version: int) -> None:
        self._version = version

    def has(self, name: str) -> bool:
        return True

    def version(self) -> tuple[int, int, int]:
        major, minor, patch = self._version
        return major, minor, patch


@pytest.mark.parametrize(
    ("version", "arch", "fault"),
    [
        ((5, 5, 30201), "gfx1030", "HIP 5.5.30201 lose kernels' arguments"),
        ((5, 5, 30202), "gfx1030", None),
        ((6, 3, 42131), "gfx942", None),
        ((7, 2, 53211), "gfx942", "HIP 7.2.53211 give wrong results on gfx942 now and then"),
        ((7, 2, 53211), "gfx950", "HIP 7.2.53211 give wrong results on gfx950 now and then"),
        ((7, 2, 53211), "gfx1201", None),
        ((7, 13, 26154), "gfx942", None),
    ],
)
def test_graphs_that_are_known_to_be_faulty(version: tuple[int, ...], arch: str, fault: str | None) -> None:
    assert graph_fault(OfVersion(*version), arch) == (f"those of {fault}" if fault else None)


def test_a_file_that_is_no_library_is_said(tmp_path: Path) -> None:
    path = tmp_path / "libamdhip64.so"
    path.write_text("nonsense")
    with pytest.raises(NoHip, match=r"libamdhip64.so cannot be loaded: .*install ROCm's HIP runtime"):
        open_library([str(path)])


def test_a_library_without_our_functions_is_said() -> None:
    path = ctypes.util.find_library("m")
    assert path is not None
    with pytest.raises(NoHip, match="no HIP runtime that we know"):
        HipLibrary(path)


def test_without_a_library_that_is_said() -> None:
    with pytest.raises(NoHip, match=r"no HIP runtime library was found \(install ROCm"):
        open_library(["libamdhip64-of-nobody.so"])


def made(root: Path, *files: str) -> list[str]:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return [str(root / file) for file in files]


def test_where_the_library_is_looked_for_on_linux(tmp_path: Path) -> None:
    """The loader's first, then /opt/rocm, its versions, the newest first, and pip's packages last."""
    files = made(
        tmp_path,
        "opt/rocm/lib/libamdhip64.so",
        "opt/rocm-6.10.0/lib/libamdhip64.so.6",
        "opt/rocm-6.9.1/lib64/libamdhip64.so.6",
        "opt/rocm-5.2.0/hip/lib/libamdhip64.so.5",
        "site/_rocm_sdk_core/lib/libamdhip64.so.7",
        "site/torch/lib/libamdhip64.so",
    )
    made(tmp_path, "opt/rocm/lib/libamd_comgr.so", "opt/other/lib/libamdhip64.so", "opt/rocm/bin/libamdhip64.so")
    names = ["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"]
    assert list(library_paths("linux", tmp_path, [tmp_path / "site"])) == [*names, *files]


def test_where_the_library_is_looked_for_on_windows(tmp_path: Path) -> None:
    files = made(
        tmp_path,
        "Program Files/AMD/ROCm/7.1/bin/amdhip64_7.dll",
        "Program Files/AMD/ROCm/6.4/bin/amdhip64_6.dll",
        "Program Files/AMD/ROCm/5.7/bin/amdhip64.dll",
        "site/_rocm_sdk_core/bin/amdhip64_7.dll",
    )
    names = ["amdhip64_7.dll", "amdhip64_6.dll", "amdhip64.dll"]
    assert list(library_paths("win32", tmp_path, [tmp_path / "site"])) == [*names, *files]


def test_elsewhere_there_is_no_such_library(tmp_path: Path) -> None:
    assert list(library_paths("darwin", tmp_path, [])) == []


def test_this_python_s_packages_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = made(tmp_path, "site/_rocm_sdk_core/lib/libamdhip64.so.7")
    monkeypatch.setattr(hip_library.sysconfig, "get_path", lambda name: str(tmp_path / "site"))
    assert list(library_paths("linux", tmp_path))[-1] == file


def test_what_keeps_a_gpu_from_being_used_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no /dev/kfd" in why_no_device(tmp_path / "kfd")
    door = tmp_path / "door"
    door.touch()
    assert "HIP_VISIBLE_DEVICES" in why_no_device(door)
    monkeypatch.setattr(hip_library.os, "access", lambda *_: False)
    assert "groups render and video" in why_no_device(door)
