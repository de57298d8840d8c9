"""Finding and loading the runtime library; and the real one, of ROCm 5.2, where it is installed."""

import ctypes.util
import os
from pathlib import Path

import pytest

from hipfire.hip import library as hip_library
from hipfire.hip.functions import FUNCTIONS
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
    assert "hipGetDevicePropertiesR0600" in missing


@pytest.mark.skipif(Path("/dev/kfd").exists(), reason="this machine has a GPU")
def test_the_real_library_says_that_there_is_no_device(real: HipLibrary) -> None:
    assert real.n_devices() == 0


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


def test_pip_s_wheels_are_looked_into_last(tmp_path: Path) -> None:
    folder = tmp_path / "_rocm_sdk_core" / "lib"
    folder.mkdir(parents=True)
    (folder / "libamdhip64.so.7").touch()
    paths = list(library_paths([tmp_path]))
    assert paths[0] == "libamdhip64.so"
    assert paths[-1] == str(folder / "libamdhip64.so.7")


def test_what_keeps_a_gpu_from_being_used_is_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "no /dev/kfd" in why_no_device(tmp_path / "kfd")
    door = tmp_path / "door"
    door.touch()
    assert "HIP_VISIBLE_DEVICES" in why_no_device(door)
    monkeypatch.setattr(hip_library.os, "access", lambda *_: False)
    assert "groups render and video" in why_no_device(door)
